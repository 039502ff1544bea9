-- read: send a command that only reads. A key of another type ends the script there and
-- then, before anything is written, with an error that names the key.
--@lazy other_type
local function read(command, key, ...)
  local found = redis.pcall(command, key, ...)
  if type(found) ~= "table" or not found.err then return found end
  local actual = other_type(command, key)
  if actual then error("WRONGKEY " .. key .. " is a " .. actual, 0) end
  error(found) -- whatever else it is, such as a missing permission, speaks for itself
end
