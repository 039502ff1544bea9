-- free_place: a place of a wide group has come free: let the next message have it. Those that
-- were started before and found no place again go first.
-- `places:<group>` holds the started messages: 1 in flight, 0 not (they are parked, say), and
-- 2 not, but due and waiting for a place. Who ends leases puts their groups a µs before now:
-- what was started goes before what was not.
--@include score
--@include read_if_fit
--@include tier_of
--@include set_flag
local function free_place(shard, wide)
  local prefix, now = shard.prefix, score(shard.now)
  local places = prefix .. ":places:" .. wide
  local late = redis.call("ZRANGE", places, "2", "2", "BYSCORE", "LIMIT", "0", "1")[1]
  shard.has_freed = true
  if late then
    redis.call("ZADD", places, "0", late)
    redis.call("ZADD", prefix .. ":ready:" .. tier_of(shard, late), "XX", "LT", now, late)
  elseif (read_if_fit("LLEN", prefix .. ":q:" .. wide) or 0) > 0 then
    if redis.call("HEXISTS", prefix .. ":paused", wide) == 0 then
      redis.call("ZADD", prefix .. ":ready:" .. tier_of(shard, wide), "XX", "LT", now, wide)
    end
  elseif redis.call("ZCARD", places) == 0 then
    redis.call("HDEL", prefix .. ":wide", wide)
    if redis.call("HLEN", prefix .. ":wide") == 0 then set_flag(shard, "wide", false) end
  end
end
