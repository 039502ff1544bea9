-- ack: finish the leased head of a group.
-- FLAGS allow-oom
-- KEYS[1] prefix    routing key of the shard
-- ARGV[1] group     string
-- ARGV[2] token     integer  the caller's fencing token
-- ARGV[3] id        string   the head's id
-- Reply {"ok" | "stale" | "moved", messages left in the group}
-- Keeps: a message is popped only by whoever holds its lease.
--@include open_shard
--@include settle
--@include hint
local shard = open_shard(KEYS[1], { "prio", "attempts", "failures", "errors", "holders", "paused",
  "scheduled", "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local words = settle(shard, {
  { outcome = "ack", group = ARGV[1], token = ARGV[2], id = ARGV[3], number = 1 },
}, true)
if words[2] > 0 or shard.has_freed then hint(shard) end
return words
