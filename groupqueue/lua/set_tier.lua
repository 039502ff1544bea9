-- set_tier: move a group, backlog and all, into another tier; it keeps its place in time.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] group   string
-- ARGV[2] tier    0..4
-- Reply {"ok", former tier} | {"empty"}
-- Keeps: a group stands in exactly one tier, in whatever state it is.
--@include open_shard
--@include digits
--@include read
--@include tier_of
--@include hint
local shard = open_shard(KEYS[1], { "prio", "backlog", "wake",
  "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local prefix, group, tier = shard.prefix, ARGV[1], ARGV[2]
local depth = read("LLEN", prefix .. ":q:" .. group)
if depth == 0 then return { "empty" } end

local former = tier_of(shard, group)
local due = redis.call("ZSCORE", prefix .. ":ready:" .. former, group)
redis.call("HSET", prefix .. ":prio", group, tier)
if former ~= tier then
  redis.call("ZREM", prefix .. ":ready:" .. former, group)
  redis.call("ZADD", prefix .. ":ready:" .. tier, due or digits(shard.now_ms), group)
  redis.call("HINCRBY", prefix .. ":backlog", former, digits(-depth))
  redis.call("HINCRBY", prefix .. ":backlog", tier, digits(depth))
  hint(shard)
end
return { "ok", former }
