-- hint: wake one idle worker. A hint carries no work; the list is capped, since a
-- worker that finds more due than it takes passes the hint on.
local HINTS_KEPT = 16

local function hint(shard)
  local wake = shard.prefix .. ":wake"
  if redis.call("LLEN", wake) < HINTS_KEPT then redis.call("LPUSH", wake, "1") end
end
