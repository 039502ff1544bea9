-- picker: look at the heads of the ready sets. Returns a function that picks the next due
-- group (group, tier), given whether an urgent one is preferred; and one that tells the ms
-- until a group that was not picked is due: 0 when one is now, -1 when none is in sight.
--@include digits
local TIER_NAMES = { [0] = "0", "1", "2", "3", "4" }

local function picker(shard, request)
  local queues, first = {}, {}
  for tier = request.min_tier, 4 do
    local ready = "ready:" .. TIER_NAMES[tier]
    queues[tier], first[tier] = {}, 1
    if shard.size[ready] > 0 then
      queues[tier] = redis.call("ZRANGE", shard.prefix .. ":" .. ready, 0, digits(request.want), "WITHSCORES")
    end
  end
  local function due(tier)
    local moment = tonumber(queues[tier][first[tier] + 1] or "")
    return moment and moment <= shard.now and moment
  end
  local function longest_waiting(from)
    local best, best_moment
    for tier = 4, from, -1 do
      local moment = due(tier)
      if moment and (not best or moment < best_moment) then best, best_moment = tier, moment end
    end
    return best
  end
  local function urgent()
    if request.threshold >= 0 then
      return longest_waiting(math.max(request.threshold, request.min_tier))
    end
    for tier = 4, request.min_tier, -1 do
      if due(tier) then return tier end
    end
  end
  local function pick(preferred)
    local tier = (preferred and urgent()) or longest_waiting(request.min_tier)
    if not tier then return nil end
    local group = queues[tier][first[tier]]
    first[tier] = first[tier] + 2
    return group, TIER_NAMES[tier]
  end
  local function wait_ms()
    local nearest
    for tier = request.min_tier, 4 do
      local text = queues[tier][first[tier] + 1]
      local moment = text and text ~= "inf" and tonumber(text)
      if moment and (not nearest or moment < nearest) then nearest = moment end
    end
    return nearest and math.max(0, math.ceil(nearest - shard.now)) or -1
  end
  return pick, wait_ms
end
