-- read_if_fit: the same as `read` for one group's own keys, where the other groups of a call
-- must go on: a key of another type holds nothing.
--@include read
local function read_if_fit(command, key, ...)
  local found = redis.pcall(command, key, ...)
  if type(found) ~= "table" or not found.err then return found end
  if redis.call("TYPE", key).ok ~= TYPES[command] then return false end
  return read(command, key, ...) -- for the error that it raises
end
