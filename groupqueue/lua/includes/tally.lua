-- tally: add to a counter, in total and for the running minute (kept 48 hours).
--@include digits
--@include add_to
local MINUTES_KEPT_S = "172800"

local function tally(shard, counter, count)
  if count == 0 then return end
  add_to(shard.prefix .. ":stats", counter, digits(count))
  local minute = shard.prefix .. ":" .. shard.minute
  if add_to(minute, counter, digits(count)) == count then
    redis.call("EXPIRE", minute, MINUTES_KEPT_S)
  end
end
