-- recover: hand back leases that a worker was given but never heard of, because the
-- reply of its turn was lost.
-- FLAGS allow-oom
-- KEYS[1] prefix       routing key of the shard
-- ARGV[1] worker       string   whose leases
-- ARGV[2] after_token  integer  the last token the worker knows; later ones are handed back
-- ARGV[3] cursor       string   "0" at first, then what the last reply said, until "0"
-- Reply {cursor, leases handed back}
-- Keeps: the deliveries do not count; a call looks at about 400 holders, or all that a small hash has.
--@include open_shard
--@include digits
--@include score
--@include tier_of
--@include tally
--@include end_leases
--@include hint
local shard = open_shard(KEYS[1], { "prio", "attempts", "holders", "paused", "stats", "minute", "wake",
  "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
if shard.wrong then return shard.wrong end
local prefix, places, released = shard.prefix, {}, 0
local function release_places()
  end_leases(shard, places)
  released, places = released + #places, {}
end
local page = redis.call("HSCAN", prefix .. ":holders", ARGV[3], "COUNT", "400")
for index = 1, #page[2], 2 do
  local group, worker = page[2][index], page[2][index + 1]
  local token = worker == ARGV[1] and redis.call("GET", prefix .. ":lock:" .. group)
  if token and tonumber(token) > tonumber(ARGV[2]) then
    if redis.call("HINCRBY", prefix .. ":attempts", group, -1) <= 0 then
      redis.call("HDEL", prefix .. ":attempts", group)
    end
    table.insert(places, { group, tier_of(shard, group), score(shard.now),
      redis.call("LLEN", prefix .. ":q:" .. group) })
    if #places == 400 then release_places() end
  end
end
release_places()
tally(shard, "released", released)
if released > 0 then hint(shard) end
return { page[1], released }
