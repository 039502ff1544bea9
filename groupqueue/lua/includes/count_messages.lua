-- count_messages: how many messages the groups of each tier have, by tier; nil when there are more than
-- 10,000 groups. A group that `prio` or its ready set has lost is found in the other.
--@include digits
--@include read_if_fit
local MOST_GROUPS_COUNTED = 10000
local COUNTED_TIERS = { "0", "1", "2", "3", "4" }

local function count_messages(shard)
  local prefix, sums, is_added, groups = shard.prefix, {}, {}, 0
  for _, tier in ipairs(COUNTED_TIERS) do
    sums[tier], groups = 0, groups + shard.size["ready:" .. tier]
  end
  if math.max(groups, shard.size.prio) > MOST_GROUPS_COUNTED then return nil end
  local function add(group, tier)
    if is_added[group] or not sums[tier] then return end
    is_added[group] = true
    sums[tier] = sums[tier] + (read_if_fit("LLEN", prefix .. ":q:" .. group) or 0)
  end
  local cursor = "0"
  repeat
    local page = redis.call("HSCAN", prefix .. ":prio", cursor, "COUNT", "1000")
    cursor = page[1]
    for index = 1, #page[2], 2 do add(page[2][index], page[2][index + 1]) end
  until cursor == "0"
  for _, tier in ipairs(COUNTED_TIERS) do
    for from = 0, shard.size["ready:" .. tier] - 1, 1000 do
      local found = redis.call("ZRANGE", prefix .. ":ready:" .. tier, digits(from), digits(from + 999))
      for _, group in ipairs(found) do add(group, tier) end
    end
  end
  return sums
end
