-- read: send a command that only reads. A key of another type ends the script there and
-- then, before anything is written, with an error that names the key.
local TYPES = {
  GET = "string", HLEN = "hash", HGETALL = "hash", HSCAN = "hash", LINDEX = "list",
  LLEN = "list", XLEN = "stream", XRANGE = "stream", ZCARD = "zset", ZSCAN = "zset",
}

local function read(command, key, ...)
  local found = redis.pcall(command, key, ...)
  if type(found) == "table" and found.err then
    local actual = redis.call("TYPE", key).ok
    if actual ~= TYPES[command] then error("WRONGKEY " .. key .. " is a " .. actual, 0) end
    error(found) -- whatever else it is, such as a missing permission, speaks for itself
  end
  return found
end
