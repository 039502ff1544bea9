-- is_moment: whether a score is a moment at which something can be due: none before there were
-- clocks, none after the calendar's end, nor, if it is given, after the latest.
local CALENDAR_END_MS = 253402300800000 -- the year 10000

local function is_moment(score, latest_ms)
  local ms = tonumber(score)
  return ms ~= nil and ms >= 0 and ms < math.min(CALENDAR_END_MS, latest_ms or CALENDAR_END_MS)
end
