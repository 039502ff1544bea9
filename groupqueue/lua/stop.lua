-- stop: pause all of the queue: nothing is claimed until it is started again. What is running
-- may finish, and publishing goes on.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] why        string  shown to operators; one line
-- ARGV[2] operation  string  tells a repetition from a new call
-- Reply {"ok"} | {"already"} | {"repeated"}
-- Keeps: the groups stand as they stood.
--@include open_shard
--@include digits
--@include has_flag
--@include set_flag
--@include is_repeated
--@include note_call
local shard = open_shard(KEYS[1], { "paused", "meta" })
if is_repeated(shard, ARGV[2], "1") then return { "repeated" } end
if has_flag(shard, "stopped") then return { "already" } end
redis.call("HSET", shard.prefix .. ":meta", "stopped", digits(shard.now_ms) .. " " .. ARGV[1])
set_flag(shard, "stopped", true)
note_call(shard, ARGV[2], "1")
return { "ok" }
