-- picker: look at the heads of the ready sets. Returns a function that picks the next due
-- group (group, tier), given whether an urgent one is preferred; and one that tells the ms
-- until a group that was not picked is due: 0 when one is now, -1 when none is in sight.
--@include digits
local TIER_NAMES = { [0] = "0", "1", "2", "3", "4" }

local function picker(shard, request)
  local queues, first, upto = {}, {}, digits(request.want)
  for tier = request.min_tier, 4 do
    local ready = "ready:" .. TIER_NAMES[tier]
    if shard.size[ready] > 0 then
      queues[tier], first[tier] = redis.call("ZRANGE", shard.prefix .. ":" .. ready, "0", upto, "WITHSCORES"), 1
    end
  end
  -- The tier whose first group has waited longest, or else the highest that has a due one.
  local function due_tier(from, is_highest)
    local best, best_moment = nil, shard.now
    for tier = 4, from, -1 do
      local moment = queues[tier] and tonumber(queues[tier][first[tier] + 1] or "")
      if moment and (moment < best_moment or (not best and moment == best_moment)) then
        best, best_moment = tier, moment
        if is_highest then return best end
      end
    end
    return best
  end
  local function pick(is_preferred)
    local tier
    if is_preferred then
      tier = due_tier(math.max(request.threshold, request.min_tier), request.threshold < 0)
    end
    tier = tier or due_tier(request.min_tier)
    if not tier then return nil end
    local at = first[tier]
    first[tier] = at + 2
    return queues[tier][at], TIER_NAMES[tier]
  end
  local function wait_ms()
    local nearest
    for tier, queue in pairs(queues) do
      local text = queue[first[tier] + 1]
      local moment = text and text ~= "inf" and tonumber(text)
      if moment and (not nearest or moment < nearest) then nearest = moment end
    end
    return nearest and math.max(0, math.ceil(nearest - shard.now)) or -1
  end
  return pick, wait_ms
end
