-- cancel: take a scheduled message back before it is due.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] id      string   the message's id
-- ARGV[2] operation  string  tells a repetition from a new call
-- Reply {"ok", group} | {"not scheduled"} | {"too deep", group} | {"repeated"}
-- Keeps: its dedup key is free again; of a held message at most 1,000 places of its group
-- are searched; a leased head is left alone.
--@include open_shard
--@include add_to
--@include score
--@include read
--@include tier_of
--@include tally
--@include forget_heads
--@include forget_scheduled
--@include lessen_doom
--@include place_groups
--@include hint
--@include is_repeated
--@include note_call
local PLACES_SEARCHED, PLACES_AT_ONCE = 1000, 50 -- a message may be large

local shard = open_shard(KEYS[1], { "prio", "attempts", "failures", "errors", "paused",
  "scheduled", "scheduled:data", "scheduled:held", "scheduled:dedup", "ready:0", "ready:1",
  "ready:2", "ready:3", "ready:4" })
local prefix, id = shard.prefix, ARGV[1]
if is_repeated(shard, ARGV[2], "1") then return { "repeated" } end
local noted = redis.call("HGET", prefix .. ":scheduled:data", id)
local group = redis.call("HGET", prefix .. ":scheduled:held", id)
local due = redis.call("ZSCORE", prefix .. ":scheduled", id)
if not due or not (noted or group) then return { "not scheduled" } end

local dedup_key = redis.call("HGET", prefix .. ":scheduled:dedup", id)
local first = dedup_key and read("GET", prefix .. ":dedup:" .. dedup_key)
local function note_cancelled()
  forget_scheduled(shard, { id })
  -- What is taken back was never published, unless the key is another message's by now.
  if first and string.sub(first, 1, 32) == id then redis.call("DEL", prefix .. ":dedup:" .. dedup_key) end
  tally(shard, "cancelled", 1)
  note_call(shard, ARGV[2], "1")
end

if noted then
  note_cancelled()
  return { "ok", string.sub(noted, 11, 10 + (tonumber(string.sub(noted, 7, 10)) or 0)) }
end

-- A held message lies in its group already, and is like any other once it is due.
local list = prefix .. ":q:" .. group
local depth = read("LLEN", list)
if tonumber(due) <= shard.now_ms then return { "not scheduled" } end

local function place_of()
  for from = 0, math.min(depth, PLACES_SEARCHED) - 1, PLACES_AT_ONCE do
    local found = redis.call("LRANGE", list, from, from + PLACES_AT_ONCE - 1)
    for index, element in ipairs(found) do
      if string.sub(element, 1, 32) == id then return from + index, element end
    end
  end
end

local place, element = place_of()
if not place then
  if depth > PLACES_SEARCHED then return { "too deep", group } end
  forget_scheduled(shard, { id }) -- its group was purged
  return { "not scheduled" }
end
if place == 1 and redis.call("EXISTS", prefix .. ":lock:" .. group) == 1 then
  return { "not scheduled" }
end
local tier = tier_of(shard, group)
redis.call("LREM", list, 1, element)
add_to(prefix .. ":backlog", tier, "-1")
lessen_doom(shard, group, 1, place)
note_cancelled()
if place == 1 then
  forget_heads(shard, { group })
  place_groups(shard, { { group, tier, score(shard.now), depth - 1 } })
  hint(shard)
end
return { "ok", group }
