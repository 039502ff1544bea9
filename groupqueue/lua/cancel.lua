-- cancel: take a scheduled message back before it is due.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] id      string   the message's id
-- Reply {"ok", group} | {"not scheduled"} | {"too deep", group}
-- Keeps: of a held message at most 1,000 places of its group are searched.
--@include open_shard
--@include score
--@include read
--@include tier_of
--@include tally
--@include forget_heads
--@include place_groups
--@include hint
local shard = open_shard(KEYS[1], { "prio", "attempts", "failures", "errors", "paused", "backlog",
  "stats", "minute", "wake", "scheduled", "scheduled:data",
  "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local prefix, id = shard.prefix, ARGV[1]
local noted = redis.call("HGET", prefix .. ":scheduled:data", id)
if not noted or not redis.call("ZSCORE", prefix .. ":scheduled", id) then return { "not scheduled" } end

local function forget()
  redis.call("ZREM", prefix .. ":scheduled", id)
  redis.call("HDEL", prefix .. ":scheduled:data", id)
  tally(shard, "cancelled", 1)
end

if string.sub(noted, 1, 1) == "M" then
  forget()
  return { "ok", string.sub(noted, 7, 6 + tonumber(string.sub(noted, 3, 6))) }
end
-- A held message lies in its group already.
local group = string.sub(noted, 2)
local list = prefix .. ":q:" .. group
local depth = read("LLEN", list)
for place, element in ipairs(redis.call("LRANGE", list, 0, 999)) do
  if string.sub(element, 1, 32) == id then
    local tier = tier_of(shard, group)
    redis.call("LREM", list, 1, element)
    redis.call("HINCRBY", prefix .. ":backlog", tier, "-1")
    forget()
    if place == 1 then
      forget_heads(shard, { group })
      place_groups(shard, { { group, tier, score(shard.now), depth - 1 } })
      hint(shard)
    end
    return { "ok", group }
  end
end
return { depth > 1000 and "too deep" or "not scheduled", group }
