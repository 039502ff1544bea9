-- started_of: the started messages of a wide group, each a group of its own: those in flight,
-- or all; a thousand at most.
--@include has_flag
--@include read_if_fit
local MOST_STARTED = "1000"

local function started_of(shard, group, is_in_flight)
  local places = shard.prefix .. ":places:" .. group
  if not has_flag(shard, "wide") or not read_if_fit("ZCARD", places) then return {} end
  return redis.call("ZRANGE", places, is_in_flight and "1" or "-inf", is_in_flight and "1" or "+inf",
    "BYSCORE", "LIMIT", "0", MOST_STARTED)
end
