-- free_place: a place of a wide group is free: let the next message have it. Those that were
-- started before and found no place again go first; returns whether there was one.
-- `places:<group>` holds the started messages: 1 in flight, 0 not (they are parked, say), 2 not,
-- but due and waiting for a place, and 3 halted. Started messages are put a µs before now: they
-- go before what was not started.
-- Keeps: nothing of a paused group is moved: who resumes it gives its places away.
--@include score
--@include read_if_fit
--@include tier_of
--@include end_width
--@lazy hold_due
local function free_place(shard, wide)
  local prefix = shard.prefix
  local places = prefix .. ":places:" .. wide
  if (read_if_fit("LLEN", prefix .. ":q:" .. wide) or 0) == 0 and not end_width(shard, wide) then
    redis.call("HDEL", prefix .. ":prio", wide)
    return false
  end
  if redis.call("HEXISTS", prefix .. ":paused", wide) == 1 then return false end
  local late = redis.call("ZRANGE", places, "2", "2", "BYSCORE", "LIMIT", "0", "1")[1]
  if late then
    redis.call("ZADD", places, "0", late)
  elseif redis.call("EXISTS", prefix .. ":lock:" .. wide) == 1 then
    return false -- leased from before it was wide
  end
  shard.has_freed = true
  local next, due = late or wide, score(late and shard.now - 0.001 or shard.now)
  if not late and shard.size.held > 0 then due = hold_due(shard, wide, due) end
  redis.call("ZADD", prefix .. ":ready:" .. tier_of(shard, next), "XX", "LT", due, next)
  return late ~= nil
end
