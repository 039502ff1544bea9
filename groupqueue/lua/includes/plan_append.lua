-- plan_append: read and check what `append` needs; whoever calls both may still refuse
-- in between. Takes groups in the order of first mention, and for each its elements:
--   by_group[group] = {first_tier = tier if the group is new, held_until = ms or nil
--   (its first element must not be delivered before), width = text if it is wide, element, …}
--@include read
--@lazy tier_of
local function plan_append(shard, groups, by_group, arrival)
  local prefix, plan = shard.prefix, { groups = groups, by_group = by_group, arrival = arrival, new = {}, depths = {} }
  if #groups == 0 then return plan end
  plan.tiers = read("HMGET", prefix .. ":prio", unpack(groups))
  plan.paused = shard.size.paused > 0 and redis.call("HMGET", prefix .. ":paused", unpack(groups))
  local is_fit = {}
  for index, group in ipairs(groups) do
    local entry, tier = by_group[group], plan.tiers[index]
    local depth = read("LLEN", prefix .. ":q:" .. group)
    if entry.width then read("HLEN", prefix .. ":wide") end
    if not tier or not string.find(tier, "^[0-4]$") then
      -- A group that has messages but no tier has lost it by hand.
      tier = depth == 0 and entry.first_tier or tier_of(shard, group, false)
      plan.tiers[index] = tier
      table.insert(plan.new, group)
      table.insert(plan.new, tier)
    end
    if not is_fit[tier] then read("ZCARD", prefix .. ":ready:" .. tier) end
    is_fit[tier], plan.depths[index] = true, depth
  end
  return plan
end
