-- score: an epoch-ms with µs as text for ZADD. A double holds it exactly enough.
local function score(milliseconds)
  return string.format("%.3f", milliseconds)
end
