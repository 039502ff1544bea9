-- rate_of: how often messages of a group may be delivered, as {interval_us, burst}: one each
-- interval, and so many at once after a pause; nil for any number. The empty group stands for
-- all of the queue. What operators say, in `rates`, wins over the default, if it says anything.
--@include has_flag
--@include parsed_rate
local function rate_of(shard, group, default)
  local said = has_flag(shard, "rates") and redis.call("HGET", shard.prefix .. ":rates", group)
  if said == "none" then return nil end
  local interval_us, burst = parsed_rate(said or default)
  if said and not interval_us then interval_us, burst = parsed_rate(default) end
  if not interval_us then return nil end
  return { group = group, interval_us = interval_us, burst = burst }
end
