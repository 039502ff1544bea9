-- score: an epoch-ms with µs as text for ZADD, which a double holds exactly enough. Two whole
-- numbers are written in half the time that a fraction takes.
local function score(milliseconds)
  local us = math.floor(milliseconds * 1000 + 0.5)
  return string.format("%d.%03d", math.floor(us / 1000), us % 1000)
end
