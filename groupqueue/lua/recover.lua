-- recover: hand back leases that a worker was given but never heard of, because the
-- reply of its turn was lost.
-- FLAGS allow-oom
-- KEYS[1] prefix       routing key of the shard
-- ARGV[1] worker       string   whose leases
-- ARGV[2] after_token  integer  the last token the worker knows; later ones are handed back
-- ARGV[3] upto_turn    integer  turns up to this number claim nothing from now on, should they
--                               still come; 0 for none
-- ARGV[4] cursor       string   "0" at first, then what the last reply said, until "0"
-- Reply {cursor, leases handed back}
-- Keeps: the deliveries do not count, of leases of several none; a call looks at about 400 holders, or all that a small hash has.
--@include open_shard
--@include score
--@include tier_of
--@include tally
--@include end_leases
--@include hint
--@include read_if_fit
--@include leased_together
--@include uncount
local GIVEN_UP_KEPT_MS = "600000" -- far longer than a command is under way

local shard = open_shard(KEYS[1], { "prio", "attempts", "holders", "paused", "scheduled",
  "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local prefix, found, released, messages = shard.prefix, {}, 0, 0
local page = redis.call("HSCAN", prefix .. ":holders", ARGV[4], "COUNT", "400")
for index = 1, #page[2], 2 do
  local group, worker = page[2][index], page[2][index + 1]
  local token = worker == ARGV[1] and read_if_fit("GET", prefix .. ":lock:" .. group)
  if token and (tonumber(token) or 0) > tonumber(ARGV[2]) then
    local depth = read_if_fit("LLEN", prefix .. ":q:" .. group)
    if depth then table.insert(found, { group, tier_of(shard, group), score(shard.now - 0.001), depth }) end
  end
end
if ARGV[3] ~= "0" then
  redis.call("SET", prefix .. ":turn:" .. ARGV[1], ARGV[3], "PX", GIVEN_UP_KEPT_MS)
end
local places = {}
for _, place in ipairs(found) do
  uncount(shard, place[1])
  local together = leased_together(shard, place[1])
  if together > 1 then redis.call("DEL", prefix .. ":batch:" .. place[1]) end
  messages = messages + together
  table.insert(places, place)
  released = released + 1
  if #places == 400 or released == #found then
    end_leases(shard, places)
    places = {}
  end
end
tally(shard, "released", messages)
if released > 0 then hint(shard) end
return { page[1], released }
