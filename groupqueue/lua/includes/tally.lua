-- tally: add to a counter, in total and for the running minute (kept 48 hours).
--@include digits
local MINUTES_KEPT_S = "172800"

local function tally(shard, counter, count)
  if count == 0 then return end
  redis.call("HINCRBY", shard.prefix .. ":stats", counter, digits(count))
  local minute = shard.prefix .. ":" .. shard.minute
  if redis.call("HINCRBY", minute, counter, digits(count)) == count then
    redis.call("EXPIRE", minute, MINUTES_KEPT_S)
  end
end
