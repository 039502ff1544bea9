-- allowance: how many messages a rate lets through now, and in how many ms the next if none;
-- notes in `rate.free_us` from when on one may go.
-- The generic cell rate algorithm: `tat:<group>` begins with the theoretical arrival time of
-- the next message, in µs; a message may come so much earlier as the burst allows.
--@include read_if_fit
local LONGEST_ARRIVAL_US = 3660 * 86400000000 -- no rate takes longer; see parsed_rate

local function allowance(shard, rate)
  local noted = read_if_fit("GET", shard.prefix .. ":tat:" .. rate.group) or ""
  rate.arrival_us = math.max(tonumber(string.match(noted, "^%d+") or "0"), shard.now_us)
  if rate.arrival_us > shard.now_us + LONGEST_ARRIVAL_US then rate.arrival_us = shard.now_us end
  rate.free_us = rate.arrival_us - (rate.burst - 1) * rate.interval_us
  local spare_us = shard.now_us - rate.free_us
  if spare_us < 0 then return 0, math.ceil(-spare_us / 1000) end
  return math.floor(spare_us / rate.interval_us) + 1, 0
end
