-- other_type: the type of a key, if it is not that for which a command is meant.
local function other_type(command, key)
  local types = {
    GET = "string", HINCRBY = "hash", HLEN = "hash", HGETALL = "hash", HMGET = "hash", HSCAN = "hash",
    LINDEX = "list", LLEN = "list", LPUSH = "list", XLEN = "stream", XRANGE = "stream", ZCARD = "zset",
    ZSCAN = "zset",
  }
  local actual = redis.call("TYPE", key).ok
  return actual ~= types[command] and actual or nil
end
