-- resume: let a paused or halted group go on; a halted head gets a new set of attempts.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] group   string
-- ARGV[2] operation  string  tells a repetition from a new call
-- Reply {"ok", "paused" | "halted"} | {"not paused"} | {"repeated"}
-- Keeps: a leased group's score is its lease's deadline again.
--@include open_shard
--@include digits
--@include score
--@include tier_of
--@include forget_heads
--@include hold_due
--@include hint
--@include is_repeated
--@include note_call
local shard = open_shard(KEYS[1], { "prio", "attempts", "failures", "errors", "paused", "wake", "scheduled",
  "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local prefix, group = shard.prefix, ARGV[1]
if is_repeated(shard, ARGV[2], "1") then return { "repeated" } end
local why = redis.call("HGET", prefix .. ":paused", group)
if not why then return { "not paused" } end
local kind = string.match(why, "^%a+")
local lease_ms = redis.call("PTTL", prefix .. ":lock:" .. group)
local due = score(shard.now)
if lease_ms > 0 then
  due = digits(shard.now_ms + lease_ms)
else
  due = hold_due(shard, group, due)
end
redis.call("HDEL", prefix .. ":paused", group)
if kind == "halted" then forget_heads(shard, { group }) end
redis.call("ZADD", prefix .. ":ready:" .. tier_of(shard, group), "XX", due, group)
note_call(shard, ARGV[2], "1")
hint(shard)
return { "ok", kind }
