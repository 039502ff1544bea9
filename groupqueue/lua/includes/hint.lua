-- hint: wake one idle worker. A hint carries no work; the list is capped, since a
-- worker that finds more due than it takes passes the hint on. Where no hints can be left, as
-- somebody made the key another thing, workers look for themselves.
--@include read_if_fit
local HINTS_KEPT = 16

local function hint(shard)
  local key = shard.prefix .. ":wake"
  local waiting = read_if_fit("LLEN", key)
  if waiting and waiting < HINTS_KEPT then redis.call("LPUSH", key, "1") end
end
