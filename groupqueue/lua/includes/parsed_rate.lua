-- parsed_rate: the interval in µs and the burst of a rate such as "6000000 1"; nil for what is no
-- rate, such as one that lets nothing through, or nothing within ten years.
local LONGEST_REFILL_US = 3660 * 86400000000

local function parsed_rate(text)
  local interval_us, burst = string.match(text, "^([1-9]%d*) ([1-9]%d*)$")
  interval_us, burst = tonumber(interval_us), tonumber(burst)
  if not interval_us or interval_us * burst > LONGEST_REFILL_US then return nil end
  return interval_us, burst
end
