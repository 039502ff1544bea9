-- mend: put a due group that cannot be leased right, or aside, so that nobody spins on it
-- and the other groups go on. Only editing by hand can leave one: without messages
-- (element false), with a list that is none (an error), or under a lock that outlives its score.
--@include digits
--@include forget_heads
--@include end_width
--@include leave_place
local function mend(shard, group, tier, element)
  local prefix = shard.prefix
  if not element then
    redis.call("ZREM", prefix .. ":ready:" .. tier, group)
    if not end_width(shard, group) then redis.call("HDEL", prefix .. ":prio", group) end
    redis.call("HDEL", prefix .. ":holders", group)
    forget_heads(shard, { group })
    leave_place(shard, group, 0)
    return
  end
  if type(element) == "table" then
    redis.call("HSET", prefix .. ":errors", group, "WRONGKEY " .. prefix .. ":q:" .. group .. " is no list")
  end
  local left_ms = redis.call("PTTL", prefix .. ":lock:" .. group)
  redis.call("ZADD", prefix .. ":ready:" .. tier, "XX",
    digits(shard.now_ms + 1 + (left_ms >= 0 and left_ms or 1000)), group)
end
