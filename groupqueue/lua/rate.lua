-- rate: say how often messages of a group, or of the whole queue, may be delivered.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] group   string or ""   "" for all of the queue
-- ARGV[2] rate    "<interval in µs> <burst>" | "none" (any number, whatever the settings say) |
--                 "" (as the settings say)
-- Reply {former rate, or "" when there was none}
-- Keeps: it holds from the next claim on, for waiting, parked and leased groups.
--@include open_shard
--@include set_flag
--@include hint
local shard = open_shard(KEYS[1], { "paused", "rates", "wake" })
local rates, group = shard.prefix .. ":rates", ARGV[1]
local former = redis.call("HGET", rates, group) or ""
if ARGV[2] == "" then
  redis.call("HDEL", rates, group)
else
  redis.call("HSET", rates, group, ARGV[2])
end
redis.call("DEL", shard.prefix .. ":tat:" .. group) -- what was used up under the former rate
set_flag(shard, "rates", redis.call("HLEN", rates) > 0)
hint(shard)
return { former }
