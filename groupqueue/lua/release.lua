-- release: end a group's lease on an operator's word; its holder can settle it no more.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] group   string
-- Reply {"ok", token} | {"not leased"}
-- Keeps: the delivery does not count; lock and score change together.
--@include open_shard
--@include read
--@include score
--@include tier_of
--@include tally
--@include uncount
--@include leased_together
--@include end_leases
--@include hint
local shard = open_shard(KEYS[1], { "prio", "attempts", "holders", "paused", "stats", "minute", "wake", "scheduled",
  "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local prefix, group = shard.prefix, ARGV[1]
local token = read("GET", prefix .. ":lock:" .. group)
if not token then return { "not leased" } end
local depth = read("LLEN", prefix .. ":q:" .. group)
local together = leased_together(shard, group)
uncount(shard, group)
if together > 1 then redis.call("DEL", prefix .. ":batch:" .. group) end
end_leases(shard, { { group, tier_of(shard, group), score(shard.now), depth } })
tally(shard, "released", together)
hint(shard)
return { "ok", token }
