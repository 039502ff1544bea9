-- turn: settle what a worker has finished and claim what it can take next.
-- FLAGS allow-oom
-- KEYS[1] prefix         routing key of the shard
-- ARGV[1] worker         string   id of the claiming worker
-- ARGV[2] visibility_ms  integer  how long each lease lasts
-- ARGV[3] want           integer  groups to claim, 0..400
-- ARGV[4] min_tier       0..4     tiers below are left alone
-- ARGV[5] preferred      integer  how many of the claims go to urgent groups
-- ARGV[6] threshold      -1..4    what urgent means, see includes/claim.lua
-- ARGV[7] settlements    integer  0..400
-- then per settlement: outcome, group, token, id, value, error; see includes/settle.lua
-- Reply {{word, left, …}, {{group, token, deliveries, failures, tier, element}, …}, wait_ms}
--   and, when messages had expired, a fourth: {group, id, …} of those dropped
-- Keeps: settling needs the token and the head's id; a group is leased to one
-- worker; whoever leaves due groups behind wakes another worker.
--@include open_shard
--@include settle
--@include promote
--@include claim
--@include sooner
--@include hint
local shard = open_shard(KEYS[1], { "prio", "attempts", "failures", "errors", "holders", "paused",
  "backlog", "stats", "minute", "wake", "fence", "scheduled",
  "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })

local settlements = {}
for number = 1, tonumber(ARGV[7]) do
  local at = 2 + number * 6
  settlements[number] = { outcome = ARGV[at], group = ARGV[at + 1], token = ARGV[at + 2],
    id = ARGV[at + 3], value = ARGV[at + 4], error = ARGV[at + 5] }
end
local words = settle(shard, settlements) -- first, as it still may find a key of a wrong type
local scheduled_ms = promote(shard)
local leases, wait_ms = claim(shard, {
  worker = ARGV[1], visibility_ms = tonumber(ARGV[2]), want = tonumber(ARGV[3]),
  min_tier = tonumber(ARGV[4]), preferred = tonumber(ARGV[5]), threshold = tonumber(ARGV[6]),
})
wait_ms = sooner(wait_ms, scheduled_ms)
if wait_ms == 0 then hint(shard) end
return { words, leases, wait_ms, shard.expired }
