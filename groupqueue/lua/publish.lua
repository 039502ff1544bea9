-- publish: append messages to their groups, all of them or none.
-- FLAGS
-- KEYS[1] prefix      routing key of the shard
-- ARGV[1] publisher   string   who sends, for telling a repetition from a new call
-- ARGV[2] sequence    integer  the publisher's call number; grows by one per call
-- ARGV[3] arrival     fair | front   where a new group queues up
-- ARGV[4] count       integer  messages, 1..1000
-- then per message:
--   group             string
--   tier              0..4     holds when the group is new
--   id                32 hex digits
--   body              bytes    opaque
-- Reply {"ok", groups made claimable} | {"repeated"}
-- Keeps: a group stands in exactly one tier; a leased, parked or paused group is not
-- disturbed; a repeated call has no second effect. Refused by the server when it is
-- out of memory.
--@include open_shard
--@include digits
--@include tally
--@include hint
--@include plan_append
--@include append
--@include is_repeated
--@include note_call
local NEVER = "0000000000000"

local shard = open_shard(KEYS[1], { "paused" })
if is_repeated(shard, ARGV[1], ARGV[2]) then return { "repeated" } end

local count, stamp = tonumber(ARGV[4]), digits(shard.now_ms) .. NEVER
local groups, by_group = {}, {}
for at = 5, 4 + count * 4, 4 do
  local entry = by_group[ARGV[at]]
  if not entry then
    entry = { first_tier = ARGV[at + 1] }
    by_group[ARGV[at]] = entry
    groups[#groups + 1] = ARGV[at]
  end
  entry[#entry + 1] = ARGV[at + 2] .. stamp .. ARGV[at + 3]
end
local claimable = append(shard, plan_append(shard, groups, by_group, ARGV[3]))
note_call(shard, ARGV[1], ARGV[2])
tally(shard, "published", count)
if claimable > 0 then hint(shard) end
return { "ok", claimable }
