-- hint: wake one idle worker. A hint carries no work; the list is capped, since a
-- worker that finds more due than it takes passes the hint on.
local HINTS_KEPT = 16

local function hint(shard)
  if shard.size.wake < HINTS_KEPT then redis.call("LPUSH", shard.prefix .. ":wake", "1") end
end
