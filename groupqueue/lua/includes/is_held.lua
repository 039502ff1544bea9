-- is_held: tell whether a message has to wait for its own moment once it is the head.
local function is_held(shard, element)
  local id = string.sub(element, 1, 32)
  if shard.size.held == 0 or redis.call("HEXISTS", shard.prefix .. ":scheduled:held", id) == 0 then
    return false
  end
  return tonumber(redis.call("ZSCORE", shard.prefix .. ":scheduled", id) or "0") > shard.now_ms
end
