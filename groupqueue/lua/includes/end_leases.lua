-- end_leases: the one way a lease ends: its lock goes and its group is placed, in
-- one step. Takes the places of place_groups.
--@include place_groups
local function end_leases(shard, places)
  if #places == 0 then return end
  local locks, groups = {}, {}
  for index, place in ipairs(places) do
    groups[index] = place[1]
    locks[index] = shard.prefix .. ":lock:" .. place[1]
  end
  redis.call("DEL", unpack(locks))
  redis.call("HDEL", shard.prefix .. ":holders", unpack(groups))
  place_groups(shard, places)
end
