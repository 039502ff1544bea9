-- mend_group: make a group whose faults are known what it should be, given what see_group saw.
-- Keeps: its messages and their order; a lease goes on if its lock is there; a sound moment stays.
--@include digits
--@include score
--@include forget_group
--@include place_groups
--@include set_flag
local LEASE_LEFT_MS = 60000 -- a holder that is alive renews it sooner

-- When the lease of a group ends, as text; nil when it has none. A lock without an expiry gets one.
local function lease_end(shard, seen)
  if not seen.is_leased then return nil end
  local left_ms = seen.left_ms
  if left_ms == -1 then
    local due = seen.stands[1] and seen.stands[1].due ~= "inf" and tonumber(seen.stands[1].due) or 0
    left_ms = math.max(LEASE_LEFT_MS, math.floor(due) - shard.now_ms)
    redis.call("PEXPIRE", shard.prefix .. ":lock:" .. seen.group, digits(left_ms))
  end
  return digits(shard.now_ms + left_ms)
end

-- What is noted of a wide group, or of a started message of one.
local function mend_width(shard, seen, has_fault)
  if has_fault["bad-width"] then -- how wide it was nobody knows
    redis.call("HSET", shard.prefix .. ":wide", seen.group, "1")
    set_flag(shard, "wide", true)
  end
  if has_fault["no-place"] then
    redis.call("ZADD", shard.prefix .. ":places:" .. seen.wide, seen.is_leased and "1" or "0", seen.group)
  end
end

local function mend_group(shard, seen, has_fault)
  local prefix, group = shard.prefix, seen.group
  local tier = string.match(seen.tier or "", "^[0-4]$") or (seen.stands[1] and seen.stands[1].tier) or "0"
  local due
  for _, stand in ipairs(seen.stands) do
    if stand.due ~= "inf" and (not due or stand.tier == tier) then due = stand.due end
    if stand.tier ~= tier then redis.call("ZREM", prefix .. ":ready:" .. stand.tier, group) end
  end
  if not due or has_fault["lock-gone"] then due = score(shard.now) end
  mend_width(shard, seen, has_fault)
  if seen.depth == 0 then
    if seen.started == 0 then forget_group(shard, group, tier) end
    return
  end
  redis.call("HSET", prefix .. ":prio", group, tier)
  if has_fault["bad-counters"] then
    redis.call("HDEL", prefix .. ":attempts", group)
    redis.call("HDEL", prefix .. ":failures", group)
  end
  if has_fault["lock-gone"] then redis.call("HDEL", prefix .. ":holders", group) end
  local deadline = lease_end(shard, seen)
  if deadline then
    redis.call("ZADD", prefix .. ":ready:" .. tier, seen.paused and "+inf" or deadline, group)
  else
    place_groups(shard, { { group, tier, due, seen.depth } })
  end
end
