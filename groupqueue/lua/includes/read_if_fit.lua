-- read_if_fit: the same as `read` for one group's own keys, where the other groups of a call
-- must go on: a key of another type holds nothing.
--@lazy other_type
local function read_if_fit(command, key, ...)
  local found = redis.pcall(command, key, ...)
  if type(found) ~= "table" or not found.err then return found end
  if other_type(command, key) then return false end
  error(found)
end
