-- has_place: tell whether a started message of a wide group may be in flight again, and give
-- it a place if so; else it waits for one, see free_place.
--@include digits
--@include read_if_fit
--@include width_of
local PAUSED_MS, LATE_MS = 1000, 60000 -- the second only in case that no place tells of itself

local function has_place(shard, group, tier, wide)
  local places = shard.prefix .. ":places:" .. wide
  local function put_off(milliseconds)
    redis.call("ZADD", shard.prefix .. ":ready:" .. tier, "XX", digits(shard.now_ms + milliseconds), group)
    return false
  end
  if not read_if_fit("ZCARD", places) or redis.call("HEXISTS", shard.prefix .. ":paused", wide) == 1 then
    return put_off(PAUSED_MS)
  end
  -- In flight already: its worker has fallen silent.
  if redis.call("ZSCORE", places, group) == "1" then return true end
  if redis.call("ZCOUNT", places, "1", "1") >= (width_of(shard, wide) or 1) then
    redis.call("ZADD", places, "2", group)
    return put_off(LATE_MS)
  end
  redis.call("ZADD", places, "1", group)
  return true
end
