-- turn: settle what a worker has finished and claim what it can take next.
-- FLAGS allow-oom
-- KEYS[1] prefix         routing key of the shard
-- ARGV[1] worker         string   id of the claiming worker
-- ARGV[2] number         integer  of the worker's turn, for telling one that comes late; 0 for none
-- ARGV[3] visibility_ms  integer  how long each lease lasts
-- ARGV[4] want           integer  groups to claim, 0..400
-- ARGV[5] batch          integer  messages that a lease may take, 1..1000
-- ARGV[6] min_tier       0..4     tiers below are left alone
-- ARGV[7] preferred      integer  how many of the claims go to urgent groups
-- ARGV[8] threshold      -1..4    what urgent means, see includes/claim.lua
-- ARGV[9] queue_rate     "<interval in µs> <burst>" or ""   see includes/claim.lua
-- ARGV[10] group_rate    "<interval in µs> <burst>" or ""
-- ARGV[11] settlements   integer  0..400
-- then per settlement: outcome, group, token, id, value, error; see includes/settle.lua. An ack
-- has no value and no error. Of a lease of several messages the outcome is followed by how many
-- of them are done and how many there are: "<outcome> <done> <together>"
-- Reply {{word, left, …}, {{group, token, deliveries, failures, tier, element, …}, …}, wait_ms}
--   and, when there are any, a fourth: {group, id, …} of expired messages that were dropped,
--   and a fifth of those set aside with the head of their group
-- Keeps: settling needs the token and the head's id; a group is leased to one
-- worker; whoever leaves due groups behind wakes another worker; a turn that its worker has
-- given up (see recover) claims nothing.
--@include open_shard
--@include read
--@include settle
--@lazy promote
--@include claim
--@include sooner
--@include hint
--@include is_given_up
local shard = open_shard(KEYS[1], { "attempts", "failures", "errors", "holders", "paused", "fence",
  "scheduled", "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })

local settlements, at = {}, 12
for number = 1, tonumber(ARGV[11]) do
  local s = { outcome = ARGV[at], group = ARGV[at + 1], token = ARGV[at + 2], id = ARGV[at + 3],
    number = number, list = "", tier = "", now = 0 } -- all that `settle` adds, so that it need not grow
  at = at + 4
  if s.outcome ~= "ack" then
    s.outcome, s.done, s.together = string.match(s.outcome, "^(%S+) ?(%d*) ?(%S*)$")
    if s.together == "" then s.together = nil end
    if s.outcome ~= "ack" then s.value, s.error, at = ARGV[at], ARGV[at + 1], at + 2 end
  end
  settlements[number] = s
end
local want = tonumber(ARGV[4])
if want > 0 and is_given_up(shard, ARGV[1], ARGV[2]) then want = 0 end
local words = settle(shard, settlements, false) -- first: it may find the key `dead` unfit
if want > 0 and not shard.knows_tiers then read("HLEN", KEYS[1] .. ":prio") end -- nothing was settled
local scheduled_ms = shard.size.scheduled > 0 and promote(shard) or -1
local leases, wait_ms = claim(shard, {
  worker = ARGV[1], visibility_ms = tonumber(ARGV[3]), want = want, batch = tonumber(ARGV[5]),
  min_tier = tonumber(ARGV[6]), preferred = tonumber(ARGV[7]), threshold = tonumber(ARGV[8]),
  queue_rate = ARGV[9], group_rate = ARGV[10],
})
wait_ms = sooner(wait_ms, scheduled_ms)
if wait_ms == 0 then hint(shard) end
if shard.buried then return { words, leases, wait_ms, shard.expired or {}, shard.buried } end
return { words, leases, wait_ms, shard.expired }
