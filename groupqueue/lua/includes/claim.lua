-- claim: lease the heads of up to `want` due groups to a worker.
-- request = {worker, visibility_ms, want, batch, min_tier, preferred, threshold}:
--   the first `preferred` claims go to urgent groups, the rest to whoever has
--   waited longest in the tiers >= min_tier. Urgent is the highest tier with a due
--   group (threshold -1), or the longest wait in the tiers >= threshold.
--   batch: how many messages of its group a lease may take
--   queue_rate, group_rate: how often messages may be delivered, in all and of one group,
--   if no operator has said otherwise: "<interval in µs> <burst>", or empty
-- Returns the leases {group, token, deliveries, failures, tier, element, …}, see lease_more,
-- and the ms until a group is due: 0 when one is left now, -1 when none is in sight.
-- Cost: O(log N + want) per tier; no more is leased once that has about 4 MB.
-- Keeps: lock and score change together.
--@include digits
--@include add_to
--@include tally
--@include picker
--@lazy mend
--@include is_expired
--@lazy drop_expired
--@lazy lease_more
--@include has_flag
--@lazy rate_of
--@lazy allowance
--@lazy use_rate
--@lazy may_go
--@lazy start_next
-- Leases a group if it can be leased; returns its row, or nil when it had to be put off or
-- mended, or its messages had expired.
local function lease(shard, request, group, tier)
  local prefix, most, rate, width = shard.prefix, request.batch, nil, nil
  if request.is_special then
    most, rate, width = may_go(shard, request, group, tier)
    if most == 0 then return nil end
    if width then group = start_next(shard, group, tier, width) end
    if not group then return nil end
  end
  local element, token = redis.pcall("LINDEX", prefix .. ":q:" .. group, "0"), digits(shard.token + 1)
  if type(element) ~= "string" or not redis.call("SET", prefix .. ":lock:" .. group, token,
    "PX", request.visibility, "NX") then
    mend(shard, group, tier, element)
    return nil
  end
  if is_expired(shard, element) then
    drop_expired(shard, group, tier)
    return nil
  end
  local deliveries = add_to(prefix .. ":attempts", group, "1")
  local failures = deliveries > 1 and redis.call("HGET", prefix .. ":failures", group)
  failures = failures and string.match(failures, "^%d+ %d+$") or "0"
  local row = { group, token, deliveries, failures, tier, element }
  shard.token, shard.may_lease_bytes = shard.token + 1, shard.may_lease_bytes - #element
  most = math.min(most, shard.may_lease)
  if most > 1 and not width then lease_more(shard, request, row, most) end
  local count = row[7] == "" and 1 or #row - 5 -- the empty one says that the head goes alone
  shard.may_lease, shard.leased = shard.may_lease - count, shard.leased + count
  if rate then use_rate(shard, rate, count) end
  return row, width
end

-- One look at the heads of the ready sets; returns the ms to wait, and how many groups are
-- worth another look: they were mended, or are wide.
local function claim_seen(shard, request, leases)
  local prefix, held, holders, mended = shard.prefix, {}, {}, 0
  request.visibility = digits(request.visibility_ms)
  local deadline = digits(shard.now_ms + request.visibility_ms)
  local pick, wait_ms = picker(shard, request)
  while #leases < request.want and shard.may_lease > 0 and shard.may_lease_bytes > 0 do
    local group, tier = pick(#leases < request.preferred)
    if not group then break end
    local row, is_wide = lease(shard, request, group, tier)
    if row then
      leases[#leases + 1] = row
      holders[#holders + 1], holders[#holders + 2] = row[1], request.worker
      local members = held[tier] or {}
      held[tier] = members
      members[#members + 1], members[#members + 2] = deadline, row[1]
    end
    if not row or is_wide then mended = mended + 1 end
  end
  for tier, members in pairs(held) do
    redis.call("ZADD", prefix .. ":ready:" .. tier, unpack(members))
  end
  if #holders > 0 then redis.call("HSET", prefix .. ":holders", unpack(holders)) end
  return wait_ms(), mended
end

-- Mending is rare, and there may be any number of expired messages, and of a wide group each
-- look takes one: whoever asks again goes on where this left off.
local LOOKS, MOST_DROPPED, MOST_BYTES, MOST_MESSAGES = 10, 1000, 4194304, 10000
local LARGEST_TOKEN = 9000000000000000 -- the year 2255, and within what a double counts exactly

local function claim(shard, request)
  local leases, wait_ms, mended = {}, -1, 0
  if has_flag(shard, "stopped") then return leases, wait_ms end
  shard.may_drop, shard.may_lease_bytes, shard.may_lease, shard.leased = MOST_DROPPED, MOST_BYTES, MOST_MESSAGES, 0
  request.is_special = shard.flags ~= "" or request.group_rate ~= ""
  local rate = (shard.flags ~= "" or request.queue_rate ~= "") and rate_of(shard, "", request.queue_rate)
  if rate then
    shard.may_lease, wait_ms = allowance(shard, rate)
    if shard.may_lease == 0 then return leases, wait_ms end
  end
  local last = tonumber(shard.size.fence or "0") or 0
  if last > LARGEST_TOKEN then last = 0 end -- only by hand: none could be counted up from there
  shard.token = math.max(last, shard.now_us - 1)
  for _ = 1, LOOKS do
    wait_ms, mended = claim_seen(shard, request, leases)
    if mended == 0 or #leases == request.want or shard.may_drop <= 0 then break end
  end
  if mended > 0 then wait_ms = 0 end
  if #leases > 0 then
    redis.call("SET", shard.prefix .. ":fence", digits(shard.token))
    tally(shard, "delivered", shard.leased)
    if rate then use_rate(shard, rate, shard.leased) end
  end
  if rate and wait_ms == 0 and shard.may_lease == 0 then
    local _, next_ms = allowance(shard, rate)
    return leases, next_ms
  end
  return leases, wait_ms
end
