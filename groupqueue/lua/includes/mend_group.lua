-- mend_group: make a group whose faults are known what it should be, given what see_group saw.
-- Keeps: its messages and their order; a lease goes on if its lock is there; a sound moment stays.
--@include digits
--@include score
--@include has_flag
--@include is_moment
--@include is_due_moment
--@include lessen_doom
--@include tier_of
--@include wanted_place
--@include forget_group
--@include place_groups
--@include set_flag
local LEASE_LEFT_MS = 60000 -- a holder that is alive renews it sooner
local LONGEST_LEFT_MS = 604800000 -- a week

-- When the lease of a group ends, as text; nil when it has none. A lock without an expiry gets one.
local function lease_end(shard, seen, has_fault)
  if not seen.is_leased then return nil end
  local left_ms = seen.left_ms
  if left_ms == -1 or has_fault["lock-too-long"] then
    local due = left_ms == -1 and seen.stands[1] and seen.stands[1].due
    if not is_moment(due, shard.now_ms + LONGEST_LEFT_MS) then due = 0 end
    left_ms = math.max(LEASE_LEFT_MS, math.floor(tonumber(due)) - shard.now_ms)
    redis.call("PEXPIRE", shard.prefix .. ":lock:" .. seen.group, digits(left_ms))
  end
  return digits(shard.now_ms + left_ms)
end

-- Notes how wide a group is of which nothing is known any more.
local function make_wide(shard, wide)
  redis.call("HSET", shard.prefix .. ":wide", wide, "1")
  if not has_flag(shard, "wide") then set_flag(shard, "wide", true) end
end

-- What is noted of a wide group, or of a started message of one.
local function mend_width(shard, seen, has_fault, tier)
  if has_fault["bad-width"] then make_wide(shard, seen.group) end
  if not has_fault["no-place"] then return end
  redis.call("ZADD", shard.prefix .. ":places:" .. seen.wide, wanted_place(shard, seen), seen.group)
  if redis.call("HEXISTS", shard.prefix .. ":wide", seen.wide) == 0 then make_wide(shard, seen.wide) end
  redis.call("HSETNX", shard.prefix .. ":prio", seen.wide, tier)
end

-- What an operator, or a failure of its head, has said of a group; what cannot be understood.
local function mend_notes(shard, seen, has_fault)
  local prefix, group = shard.prefix, seen.group
  if has_fault["bad-pause"] then
    local kind = string.find(seen.paused, "^halted") and "halted" or "paused"
    local told = string.gsub(string.sub(seen.paused, 1, 200), "%c", " ")
    seen.paused = kind .. " " .. digits(shard.now_ms) .. " " .. told
    redis.call("HSET", prefix .. ":paused", group, seen.paused)
  end
  if has_fault["bad-rate"] then
    redis.call("HDEL", prefix .. ":rates", group)
    set_flag(shard, "rates", redis.call("HLEN", prefix .. ":rates") > 0)
  end
  if has_fault["bad-doom"] then
    local behind = string.match(seen.doomed, "^[1-9]%d* (.*)$")
    if behind then
      redis.call("HSET", prefix .. ":doomed", group, digits(seen.depth) .. " " .. behind)
    else
      lessen_doom(shard, group)
    end
  end
end

local function mend_group(shard, seen, has_fault)
  local prefix, group = shard.prefix, seen.group
  local tier = string.match(seen.tier or "", "^[0-4]$") or (seen.stands[1] and seen.stands[1].tier)
  if not tier then -- of a wide group it is that of what has been started
    local started = seen.started > 0 and redis.call("ZRANGE", prefix .. ":places:" .. group, "0", "0")[1]
    tier = started and tier_of(shard, started) or "0"
  end
  local due
  for _, stand in ipairs(seen.stands) do
    if is_due_moment(shard, seen, stand.due) and (not due or stand.tier == tier) then due = stand.due end
    if stand.tier ~= tier then redis.call("ZREM", prefix .. ":ready:" .. stand.tier, group) end
  end
  if has_fault["bad-token"] then -- whoever held it can settle it no more
    redis.call("DEL", prefix .. ":lock:" .. group, prefix .. ":batch:" .. group)
    seen.is_leased = false
  end
  -- Whoever waits for a place is not noted as waiting once it is placed anew: it looks for itself.
  local is_late = seen.place == "2"
  if not due or is_late or has_fault["bad-token"] or has_fault["lock-gone"] then due = score(shard.now) end
  mend_notes(shard, seen, has_fault)
  mend_width(shard, seen, has_fault, tier)
  if seen.depth == 0 then
    forget_group(shard, group, tier)
    if seen.started > 0 then redis.call("HSET", prefix .. ":prio", group, tier) end
    return
  end
  redis.call("HSET", prefix .. ":prio", group, tier)
  if has_fault["bad-counters"] then
    redis.call("HDEL", prefix .. ":attempts", group)
    redis.call("HDEL", prefix .. ":failures", group)
  end
  if has_fault["bad-token"] or has_fault["lock-gone"] then redis.call("HDEL", prefix .. ":holders", group) end
  local deadline = lease_end(shard, seen, has_fault)
  if deadline then
    redis.call("ZADD", prefix .. ":ready:" .. tier, seen.paused and "+inf" or deadline, group)
  else
    place_groups(shard, { { group, tier, due, seen.depth } })
  end
end
