-- allowance: how many messages a rate lets through now, and in how many ms the next if none.
-- The generic cell rate algorithm: `tat:<group>` is the theoretical arrival time of the next
-- message, in µs; a message may come so much earlier as the burst allows.
--@include read_if_fit
local function allowance(shard, rate)
  local noted = tonumber(read_if_fit("GET", shard.prefix .. ":tat:" .. rate.group) or "0") or 0
  rate.arrival_us = math.max(noted, shard.now_us)
  local spare_us = (rate.burst - 1) * rate.interval_us - (rate.arrival_us - shard.now_us)
  if spare_us < 0 then return 0, math.ceil(-spare_us / 1000) end
  return math.floor(spare_us / rate.interval_us) + 1, 0
end
