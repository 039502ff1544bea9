-- rate_of: how often messages of a group may be delivered, as {interval_us, burst}: one each
-- interval, and so many at once after a pause; nil for any number. The empty group stands for
-- all of the queue. What operators say, in `rates`, wins over the default.
--@include has_flag
local function rate_of(shard, group, default)
  local rate = has_flag(shard, "rates") and redis.call("HGET", shard.prefix .. ":rates", group) or default
  local interval, burst = string.match(rate, "^(%d+) (%d+)$")
  if not interval then return nil end
  return { group = group, interval_us = tonumber(interval), burst = tonumber(burst) }
end
