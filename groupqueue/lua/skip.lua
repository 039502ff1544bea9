-- skip: set the head of a group that nobody holds aside as a dead letter; the group
-- goes on with the next message.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] group   string
-- ARGV[2] id      string   the head's id, so that nothing else is skipped
-- ARGV[3] operation  string  tells a repetition from a new call
-- Reply {"ok", messages left} | {"leased"} | {"moved"} | {"repeated"}
-- Keeps: a leased group's head belongs to its lease; order of the rest.
--@include open_shard
--@include add_to
--@include score
--@include started_name
--@include tier_of
--@include tally
--@include dead_letter
--@include forget_heads
--@include end_halt
--@include lessen_doom
--@include place_groups
--@include hint
--@include read
--@include is_repeated
--@include note_call
local shard = open_shard(KEYS[1], { "prio", "attempts", "failures", "errors", "holders", "paused",
  "dead", "scheduled", "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local prefix, group = shard.prefix, ARGV[1]
if is_repeated(shard, ARGV[3], "1") then return { "repeated" } end
-- Of a wide group it may have been started.
local started = started_name(group, ARGV[2])
if redis.call("EXISTS", prefix .. ":q:" .. started) == 1 then group = started end
if redis.call("EXISTS", prefix .. ":lock:" .. group) == 1 then return { "leased" } end
local head = read("LINDEX", prefix .. ":q:" .. group, 0)
if not head or string.sub(head, 1, 32) ~= ARGV[2] then return { "moved" } end

local tier = tier_of(shard, group)
local last_error = shard.size.errors > 0 and redis.call("HGET", prefix .. ":errors", group)
local is_aside, why = dead_letter(shard, group, tier, "skipped", last_error or "")
if not is_aside then error(why, 0) end
forget_heads(shard, { group })
redis.call("HDEL", prefix .. ":holders", group) -- of a lease that ran out
end_halt(shard, group)
lessen_doom(shard, group, 1)
local left = redis.call("LLEN", prefix .. ":q:" .. group)
place_groups(shard, { { group, tier, score(shard.now), left } })
add_to(prefix .. ":backlog", tier, "-1")
tally(shard, "dead", 1)
note_call(shard, ARGV[3], "1")
if left > 0 or shard.has_freed then hint(shard) end
return { "ok", left }
