-- claim: lease the heads of up to `want` due groups to a worker.
-- request = {worker, visibility_ms, want, min_tier, preferred, threshold}:
--   the first `preferred` claims go to urgent groups, the rest to whoever has
--   waited longest in the tiers >= min_tier. Urgent is the highest tier with a due
--   group (threshold -1), or the longest wait in the tiers >= threshold.
-- Returns the leases {group, token, deliveries, failures, tier, element} and the ms
-- until a group is due: 0 when one is left now, -1 when none is in sight.
-- Cost: O(log N + want) per tier. Keeps: lock and score change together.
--@include digits
--@include tally
local TIER_NAMES = { [0] = "0", "1", "2", "3", "4" }

-- Returns a function that picks the next due group: group, tier; and the queues it reads.
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

-- A ready group without messages, or under a lock that outlives its score, can only
-- come from editing by hand: put it right, so that nobody spins on it.
local function mend(shard, group, tier, empty)
  if empty then
    redis.call("ZREM", shard.prefix .. ":ready:" .. tier, group)
    redis.call("HDEL", shard.prefix .. ":prio", group)
    redis.call("HDEL", shard.prefix .. ":attempts", group)
    redis.call("HDEL", shard.prefix .. ":holders", group)
    return
  end
  local left_ms = redis.call("PTTL", shard.prefix .. ":lock:" .. group)
  redis.call("ZADD", shard.prefix .. ":ready:" .. tier, "XX",
    digits(shard.now_ms + 1 + (left_ms >= 0 and left_ms or 1000)), group)
end

local function claim(shard, request)
  local prefix, leases, held = shard.prefix, {}, {}
  local deadline = digits(shard.now_ms + request.visibility_ms)
  local token = math.max(tonumber(redis.call("GET", prefix .. ":fence") or "0"), shard.now_us - 1)
  local holders = {}
  local pick, wait_ms = picker(shard, request)
  while #leases < request.want do
    local group, tier = pick(#leases < request.preferred)
    if not group then break end
    local element = redis.call("LINDEX", prefix .. ":q:" .. group, 0)
    local name = digits(token + 1)
    if element and redis.call("SET", prefix .. ":lock:" .. group, name,
      "PX", digits(request.visibility_ms), "NX") then
      token = token + 1
      local deliveries = redis.call("HINCRBY", prefix .. ":attempts", group, 1)
      local failures = deliveries > 1 and redis.call("HGET", prefix .. ":failures", group) or "0"
      table.insert(leases, { group, name, deliveries, tonumber(failures), tier, element })
      table.insert(holders, group)
      table.insert(holders, request.worker)
      held[tier] = held[tier] or {}
      table.insert(held[tier], deadline)
      table.insert(held[tier], group)
    else
      mend(shard, group, tier, not element)
    end
  end
  if #leases > 0 then
    for tier, members in pairs(held) do
      redis.call("ZADD", prefix .. ":ready:" .. tier, unpack(members))
    end
    redis.call("HSET", prefix .. ":holders", unpack(holders))
    redis.call("SET", prefix .. ":fence", digits(token))
    tally(shard, "delivered", #leases)
  end
  return leases, wait_ms()
end
