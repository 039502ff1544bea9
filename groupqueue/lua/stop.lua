-- stop: pause all of the queue: nothing is claimed until it is started again. What is running
-- may finish, and publishing goes on.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] why     string   shown to operators
-- Reply {"ok"} | {"already"}
-- Keeps: the groups stand as they stood.
--@include open_shard
--@include digits
--@include has_flag
--@include set_flag
local shard = open_shard(KEYS[1], { "paused", "meta" })
if has_flag(shard, "stopped") then return { "already" } end
redis.call("HSET", shard.prefix .. ":meta", "stopped", digits(shard.now_ms) .. " " .. ARGV[1])
set_flag(shard, "stopped", true)
return { "ok" }
