-- started_of: the started messages of a wide group, each a group of its own: a thousand at
-- most, all or those of a kind: 1 in flight, 3 halted; see free_place.
--@include has_flag
--@include read_if_fit
local MOST_STARTED = "1000"

local function started_of(shard, group, kind)
  local places = shard.prefix .. ":places:" .. group
  if not has_flag(shard, "wide") or not read_if_fit("ZCARD", places) then return {} end
  return redis.call("ZRANGE", places, kind or "-inf", kind or "+inf", "BYSCORE", "LIMIT", "0", MOST_STARTED)
end
