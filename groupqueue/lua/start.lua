-- start: let a queue that was stopped go on.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- Reply {"ok"} | {"not stopped"}
-- Keeps: groups that are paused or halted by themselves stay so.
--@include open_shard
--@include has_flag
--@include set_flag
--@include hint
local shard = open_shard(KEYS[1], { "paused", "meta", "wake" })
if not has_flag(shard, "stopped") then return { "not stopped" } end
redis.call("HDEL", shard.prefix .. ":meta", "stopped")
set_flag(shard, "stopped", false)
hint(shard)
return { "ok" }
