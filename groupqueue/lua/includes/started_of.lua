-- started_of: the started messages of a wide group, each a group of its own: a thousand at
-- most, all or those of a kind: 1 in flight, 3 halted; see free_place.
--@include has_flag
--@include read_if_fit
--@include wide_of
local MOST_STARTED = "1000"

local function started_of(shard, group, kind)
  local places = shard.prefix .. ":places:" .. group
  if not has_flag(shard, "wide") or not read_if_fit("ZCARD", places) then return {} end
  local started = {}
  local found = redis.call("ZRANGE", places, kind or "-inf", kind or "+inf", "BYSCORE", "LIMIT", "0", MOST_STARTED)
  for _, member in ipairs(found) do
    if wide_of(member) == group then table.insert(started, member) end -- else put there by hand
  end
  return started
end
