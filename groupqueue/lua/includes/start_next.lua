-- start_next: make the head of a wide group's list a group of its own, if a place is free.
-- Returns that group, or nil when there is nothing to start.
--@include score
--@include read_if_fit
--@include is_expired
--@include is_held
--@include drop_expired
--@include place_groups
local FULL_MS = 60000 -- only in case that no place tells of itself

local function start_next(shard, wide, tier, width)
  local prefix, list, places = shard.prefix, shard.prefix .. ":q:" .. wide, shard.prefix .. ":places:" .. wide
  local element = redis.pcall("LINDEX", list, 0)
  if type(element) ~= "string" then return nil end
  if is_expired(shard, element) then
    drop_expired(shard, wide, tier)
    return nil
  end
  local lock_ms = redis.call("PTTL", prefix .. ":lock:" .. wide) -- of before it was wide
  local is_full = (read_if_fit("ZCARD", places) == false)
    or redis.call("ZCOUNT", places, "1", "1") >= width
  if lock_ms ~= -2 or is_full or is_held(shard, element) then
    local pause_ms = is_full and FULL_MS or math.max(lock_ms, 0) + 1
    place_groups(shard, { { wide, tier, score(shard.now + pause_ms), 1 } })
    return nil
  end
  local group = wide .. "\255" .. string.sub(element, 1, 32)
  redis.call("LPOP", list)
  redis.call("RPUSH", prefix .. ":q:" .. group, element)
  redis.call("HSET", prefix .. ":prio", group, tier)
  redis.call("ZADD", places, "1", group)
  place_groups(shard, { { wide, tier, score(shard.now), redis.call("LLEN", list) } })
  return group
end
