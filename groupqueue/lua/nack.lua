-- nack: give the leased head back after a failure, to be tried again.
-- FLAGS allow-oom
-- KEYS[1] prefix    routing key of the shard
-- ARGV[1] group     string
-- ARGV[2] token     integer  the caller's fencing token
-- ARGV[3] id        string   the head's id
-- ARGV[4] delay_ms  integer  0 or more; the group is parked that long
-- ARGV[5] error     string   shown to operators
-- Reply {"ok" | "stale" | "moved", messages left in the group}
-- Keeps: the head keeps its place; lock and score change together.
--@include open_shard
--@include settle
--@include hint
local shard = open_shard(KEYS[1], { "prio", "attempts", "failures", "errors", "holders", "paused",
  "scheduled", "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local words = settle(shard, {
  { outcome = "retry", group = ARGV[1], token = ARGV[2], id = ARGV[3], number = 1,
    value = ARGV[4], error = ARGV[5] },
}, true)
if words[2] > 0 or shard.has_freed then hint(shard) end
return words
