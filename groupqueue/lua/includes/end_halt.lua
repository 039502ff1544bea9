-- end_halt: lift the halt of a group whose halted head is gone; an operator's pause,
-- which a halt keeps behind itself, stays.
local function end_halt(shard, group)
  local key = shard.prefix .. ":paused"
  local why = shard.size.paused > 0 and redis.call("HGET", key, group)
  if not why or string.sub(why, 1, 6) ~= "halted" then return end
  local paused = string.match(why, "\n(.*)")
  if paused then
    redis.call("HSET", key, group, paused)
  else
    redis.call("HDEL", key, group)
  end
end
