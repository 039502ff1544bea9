-- tier_of: the tier a group is in, as text. Should `prio` have lost it or hold none, it is
-- where the group stands ready, so that it never enters a second one.
local TIERS = { "4", "3", "2", "1", "0" }

local function tier_of(shard, group, known)
  local tier = known
  if tier == nil then tier = redis.call("HGET", shard.prefix .. ":prio", group) end
  if tier and string.match(tier, "^[0-4]$") then return tier end
  for _, candidate in ipairs(TIERS) do
    if redis.call("ZSCORE", shard.prefix .. ":ready:" .. candidate, group) then return candidate end
  end
  return "0"
end
