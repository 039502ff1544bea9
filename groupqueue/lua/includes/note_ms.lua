-- note_ms: how long it is kept how many messages a lease holds: far longer than the lease.
--@include digits
local SHORTEST_NOTE_MS = 3600000

local function note_ms(visibility_ms)
  return digits(math.max(SHORTEST_NOTE_MS, visibility_ms * 10))
end
