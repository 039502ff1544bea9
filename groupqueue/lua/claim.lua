-- claim: lease the group that has waited longest.
-- FLAGS allow-oom
-- KEYS[1] prefix         routing key of the shard
-- ARGV[1] worker         string   id of the claiming worker
-- ARGV[2] visibility_ms  integer  how long the lease lasts
-- ARGV[3] min_tier       0..4     tiers below are left alone
-- Reply {{{group, token, deliveries, failures, tier, element}} or {}, wait_ms}
-- Keeps: a group is leased to one worker; lock and score change together.
--@include open_shard
--@lazy promote
--@include claim
--@include sooner
local shard = open_shard(KEYS[1], { "prio", "attempts", "failures", "errors", "holders", "paused",
  "scheduled", "fence", "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local scheduled_ms = shard.size.scheduled > 0 and promote(shard) or -1
local leases, wait_ms = claim(shard, {
  worker = ARGV[1], visibility_ms = tonumber(ARGV[2]), want = 1, batch = 1, queue_rate = "", group_rate = "",
  min_tier = tonumber(ARGV[3]), preferred = 0, threshold = -1,
})
return { leases, sooner(wait_ms, scheduled_ms) }
