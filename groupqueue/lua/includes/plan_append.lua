-- plan_append: read and check what `append` needs; whoever calls both may still refuse
-- in between. Takes groups in the order of first mention, and for each its elements:
--   by_group[group] = {first_tier = tier if the group is new, held_until = ms or nil
--   (its first element must not be delivered before), width = text if it is wide, element, …}
--@include read
local function plan_append(shard, groups, by_group, arrival)
  local prefix, plan = shard.prefix, { groups = groups, by_group = by_group, arrival = arrival }
  if #groups == 0 then return plan end
  for _, group in ipairs(groups) do
    if by_group[group].width then read("HLEN", prefix .. ":wide") end
  end
  plan.tiers = redis.call("HMGET", prefix .. ":prio", unpack(groups))
  plan.paused = shard.size.paused > 0 and redis.call("HMGET", prefix .. ":paused", unpack(groups))
  plan.depths = {}
  for index, group in ipairs(groups) do
    plan.depths[index] = read("LLEN", prefix .. ":q:" .. group)
  end
  return plan
end
