-- claim: lease the heads of up to `want` due groups to a worker.
-- request = {worker, visibility_ms, want, batch, min_tier, preferred, threshold}:
--   the first `preferred` claims go to urgent groups, the rest to whoever has
--   waited longest in the tiers >= min_tier. Urgent is the highest tier with a due
--   group (threshold -1), or the longest wait in the tiers >= threshold.
--   batch: how many messages of its group a lease may take
-- Returns the leases {group, token, deliveries, failures, tier, element, …}, see lease_more,
-- and the ms until a group is due: 0 when one is left now, -1 when none is in sight.
-- Cost: O(log N + want) per tier; no more is leased once that has about 4 MB.
-- Keeps: lock and score change together.
--@include digits
--@include tally
--@include picker
--@include mend
--@include is_expired
--@include drop_expired
--@include lease_more
-- Leases a group if it can be leased; returns its row, or nil when it had to be mended
-- or its messages had expired.
local function lease(shard, request, group, tier, token)
  local prefix = shard.prefix
  local element = redis.pcall("LINDEX", prefix .. ":q:" .. group, 0)
  if type(element) ~= "string" or not redis.call("SET", prefix .. ":lock:" .. group, token,
    "PX", digits(request.visibility_ms), "NX") then
    mend(shard, group, tier, element)
    return nil
  end
  if is_expired(shard, element) then
    drop_expired(shard, group, tier)
    return nil
  end
  local deliveries = redis.call("HINCRBY", prefix .. ":attempts", group, 1)
  local failures = deliveries > 1 and redis.call("HGET", prefix .. ":failures", group) or "0"
  local row = { group, token, deliveries, tonumber(failures), tier, element }
  shard.may_lease_bytes = shard.may_lease_bytes - #element
  if request.batch > 1 then lease_more(shard, request, row) end
  return row
end

-- One look at the heads of the ready sets; returns the ms to wait and what was mended.
local function claim_seen(shard, request, leases)
  local prefix, held, holders, mended = shard.prefix, {}, {}, 0
  local deadline = digits(shard.now_ms + request.visibility_ms)
  local pick, wait_ms = picker(shard, request)
  while #leases < request.want and shard.may_lease_bytes > 0 do
    local group, tier = pick(#leases < request.preferred)
    if not group then break end
    local row = lease(shard, request, group, tier, digits(shard.token + 1))
    if row then
      shard.token = shard.token + 1
      leases[#leases + 1] = row
      holders[#holders + 1], holders[#holders + 2] = group, request.worker
      held[tier] = held[tier] or {}
      table.insert(held[tier], deadline)
      table.insert(held[tier], group)
    else
      mended = mended + 1
    end
  end
  for tier, members in pairs(held) do
    redis.call("ZADD", prefix .. ":ready:" .. tier, unpack(members))
  end
  if #holders > 0 then redis.call("HSET", prefix .. ":holders", unpack(holders)) end
  return wait_ms(), mended
end

-- Mending is rare, and there may be any number of expired messages: whoever asks again goes
-- on where this left off.
local LOOKS, MOST_DROPPED, MOST_BYTES = 10, 1000, 4194304

local function claim(shard, request)
  local leases, wait_ms, mended, messages = {}, -1, 0, 0
  shard.may_drop, shard.may_lease_bytes = MOST_DROPPED, MOST_BYTES
  shard.token = math.max(tonumber(shard.size.fence or "0"), shard.now_us - 1)
  for _ = 1, LOOKS do
    wait_ms, mended = claim_seen(shard, request, leases)
    if mended == 0 or #leases == request.want or shard.may_drop <= 0 then break end
  end
  if #leases > 0 then
    redis.call("SET", shard.prefix .. ":fence", digits(shard.token))
    for _, row in ipairs(leases) do messages = messages + math.max(1, #row - 5) end
    tally(shard, "delivered", messages)
  end
  return leases, mended > 0 and 0 or wait_ms
end
