-- pause: hold a group until an operator resumes it; a running lease may finish.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] group   string
-- ARGV[2] why     string   shown to operators; one line
-- ARGV[3] operation  string  tells a repetition from a new call
-- Reply {"ok"} | {"already"} | {"repeated"}
-- Keeps: a paused group's ready score is +inf; a leased group stays leased.
--@include open_shard
--@include digits
--@include tier_of
--@include is_repeated
--@include note_call
local shard = open_shard(KEYS[1], { "prio", "paused",
  "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local prefix, group = shard.prefix, ARGV[1]
if is_repeated(shard, ARGV[3], "1") then return { "repeated" } end
if redis.call("HEXISTS", prefix .. ":paused", group) == 1 then return { "already" } end
redis.call("HSET", prefix .. ":paused", group, "paused " .. digits(shard.now_ms) .. " " .. ARGV[2])
redis.call("ZADD", prefix .. ":ready:" .. tier_of(shard, group), "XX", "+inf", group)
note_call(shard, ARGV[3], "1")
return { "ok" }
