-- has_place: tell whether a started message of a wide group may be in flight again, and give
-- it a place if so; else it waits for one, see free_place.
--@include digits
--@include read_if_fit
--@include width_of
local LATE_MS = 60000 -- only in case that no place tells of itself

local function has_place(shard, group, tier, wide)
  local places = shard.prefix .. ":places:" .. wide
  local in_flight = read_if_fit("ZCARD", places) and redis.call("ZCOUNT", places, "1", "1")
  local is_paused = redis.call("HEXISTS", shard.prefix .. ":paused", wide) == 1
  if in_flight and not is_paused then
    -- In flight already: its worker has fallen silent.
    if redis.call("ZSCORE", places, group) == "1" then return true end
    if in_flight < (width_of(shard, wide) or 1) then
      redis.call("ZADD", places, "1", group)
      return true
    end
  end
  if in_flight then redis.call("ZADD", places, "2", group) end
  redis.call("HDEL", shard.prefix .. ":holders", group) -- of a lease that ran out
  redis.call("ZADD", shard.prefix .. ":ready:" .. tier, "XX", digits(shard.now_ms + LATE_MS), group)
  return false
end
