-- purge: throw a group's messages away, the leased ones too.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] count   integer  groups, 1..100
-- then per group: group
-- Reply {groups that had messages, messages thrown away}
-- Keeps: the server is not blocked: lists are unlinked; a former holder's settle is stale;
-- an operator's pause stays.
--@include open_shard
--@include digits
--@include read
--@include tier_of
--@include tally
--@include forget_group
local shard = open_shard(KEYS[1], { "prio", "attempts", "failures", "errors", "holders", "paused",
  "backlog", "stats", "minute", "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local prefix, count, groups, messages = shard.prefix, tonumber(ARGV[1]), 0, 0
for number = 1, count do read("LLEN", prefix .. ":q:" .. ARGV[number + 1]) end
for number = 1, count do
  local group = ARGV[number + 1]
  local tier, depth = tier_of(shard, group), redis.call("LLEN", prefix .. ":q:" .. group)
  redis.call("UNLINK", prefix .. ":q:" .. group)
  forget_group(shard, group, tier)
  if depth > 0 then
    redis.call("HINCRBY", prefix .. ":backlog", tier, digits(-depth))
    groups, messages = groups + 1, messages + depth
  end
end
tally(shard, "purged", messages)
return { groups, messages }
