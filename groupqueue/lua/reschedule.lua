-- reschedule: change when a scheduled message is due.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] id      string   the message's id
-- ARGV[2] due     +delay_ms | epoch_ms
-- Reply {"ok"} | {"not scheduled"}
-- Keeps: a held message keeps its place; a leased or paused group is not disturbed.
--@include open_shard
--@include digits
--@include score
--@include read
--@include tier_of
--@include place_groups
--@include hint
local shard = open_shard(KEYS[1], { "prio", "paused", "scheduled", "scheduled:data",
  "scheduled:held", "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local prefix, id = shard.prefix, ARGV[1]
local group = redis.call("HGET", prefix .. ":scheduled:held", id)
local former = redis.call("ZSCORE", prefix .. ":scheduled", id)
local is_noted = group or redis.call("HEXISTS", prefix .. ":scheduled:data", id) == 1
if not former or not is_noted then return { "not scheduled" } end

local due = tonumber(ARGV[2]) + (string.sub(ARGV[2], 1, 1) == "+" and shard.now_ms or 0)
local depth = group and read("LLEN", prefix .. ":q:" .. group)
-- A held message is like any other once it is due; its group may have been purged.
if group and (depth == 0 or tonumber(former) <= shard.now_ms) then return { "not scheduled" } end

redis.call("ZADD", prefix .. ":scheduled", digits(due), id)
local is_waiting = group and redis.call("EXISTS", prefix .. ":lock:" .. group) == 0
if is_waiting and string.sub(redis.call("LINDEX", prefix .. ":q:" .. group, 0), 1, 32) == id then
  place_groups(shard, { { group, tier_of(shard, group), score(shard.now), depth } })
end
hint(shard)
return { "ok" }
