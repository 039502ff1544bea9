-- start_next: make the head of a wide group's list a group of its own, if a place is free.
-- Returns that group, or nil when there is nothing to start.
--@include score
--@include started_name
--@include read_if_fit
--@include is_expired
--@include is_held
--@include drop_expired
--@include place_groups
--@include mend
local FULL_MS = 60000 -- only in case that no place tells of itself
local KNOWN_OF_HEADS = { "attempts", "failures", "errors" }

-- A head that was tried before its group was wide takes along what is known of it.
local function take_along(shard, wide, group)
  for _, name in ipairs(KNOWN_OF_HEADS) do
    local known = shard.size[name] > 0 and redis.call("HGET", shard.prefix .. ":" .. name, wide)
    if known then
      redis.call("HSET", shard.prefix .. ":" .. name, group, known)
      redis.call("HDEL", shard.prefix .. ":" .. name, wide)
      redis.call("DEL", shard.prefix .. ":batch:" .. wide)
    end
  end
  redis.call("HDEL", shard.prefix .. ":holders", wide)
end

local function start_next(shard, wide, tier, width)
  local prefix, list, places = shard.prefix, shard.prefix .. ":q:" .. wide, shard.prefix .. ":places:" .. wide
  local element = redis.pcall("LINDEX", list, 0)
  -- It may be leased from before it was wide.
  if type(element) ~= "string" or redis.call("EXISTS", prefix .. ":lock:" .. wide) == 1 then
    mend(shard, wide, tier, element)
    return nil
  end
  if is_expired(shard, element) then
    drop_expired(shard, wide, tier)
    return nil
  end
  local is_full = not read_if_fit("ZCARD", places) or redis.call("ZCOUNT", places, "1", "1") >= width
  if is_full or is_held(shard, element) then
    place_groups(shard, { { wide, tier, score(shard.now + (is_full and FULL_MS or 0)), 1 } })
    return nil
  end
  local group = started_name(wide, element)
  if not read_if_fit("LLEN", prefix .. ":q:" .. group) then -- the next one waits until that is put right
    mend(shard, wide, tier, {})
    return nil
  end
  redis.call("LPOP", list)
  redis.call("RPUSH", prefix .. ":q:" .. group, element)
  redis.call("HSET", prefix .. ":prio", group, tier)
  redis.call("ZADD", places, "1", group)
  take_along(shard, wide, group)
  place_groups(shard, { { wide, tier, score(shard.now), redis.call("LLEN", list) } })
  return group
end
