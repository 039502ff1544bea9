-- start: let a queue that was stopped go on.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] operation  string  tells a repetition from a new call
-- Reply {"ok"} | {"not stopped"} | {"repeated"}
-- Keeps: groups that are paused or halted by themselves stay so.
--@include open_shard
--@include has_flag
--@include set_flag
--@include is_repeated
--@include note_call
--@include hint
local shard = open_shard(KEYS[1], { "paused", "meta" })
if is_repeated(shard, ARGV[1], "1") then return { "repeated" } end
if not has_flag(shard, "stopped") then return { "not stopped" } end
redis.call("HDEL", shard.prefix .. ":meta", "stopped")
set_flag(shard, "stopped", false)
note_call(shard, ARGV[1], "1")
hint(shard)
return { "ok" }
