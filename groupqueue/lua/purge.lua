-- purge: throw a group's messages away, the leased ones too.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] count   integer  groups, 1..100
-- then per group: group
-- Reply {groups that had messages, messages thrown away}
-- Keeps: the server is not blocked: lists are unlinked; a former holder's settle is stale;
-- an operator's pause stays. Of the messages that are held, in all groups, a thousand are
-- looked at: what is noted of others goes when they are due. Of those that have been started,
-- in all wide groups, a thousand are thrown away: whoever wants more calls again.
--@include open_shard
--@include digits
--@include add_to
--@include read
--@include tier_of
--@include tally
--@include forget_group
--@include wide_of
--@include free_place
--@include read_if_fit
--@include started_of
--@include forget_scheduled
local MOST_SEEN = 1000

local shard = open_shard(KEYS[1], { "prio", "attempts", "failures", "errors", "holders", "paused",
  "scheduled", "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local prefix, count, groups, messages = shard.prefix, tonumber(ARGV[1]), 0, 0
for number = 1, count do read("LLEN", prefix .. ":q:" .. ARGV[number + 1]) end

-- Drops what is noted of the held messages of purged groups.
local function forget_held(is_purged)
  local ids, cursor, seen = {}, "0", 0
  repeat
    local page = redis.call("HSCAN", prefix .. ":scheduled:held", cursor, "COUNT", "500")
    cursor = page[1]
    for index = 1, #page[2], 2 do
      seen = seen + 1
      if is_purged[page[2][index + 1]] and #ids < MOST_SEEN then table.insert(ids, page[2][index]) end
    end
  until cursor == "0" or seen >= MOST_SEEN
  forget_scheduled(shard, ids)
end

local is_purged, seen = {}, 0
local function throw_away(group)
  local tier, depth = tier_of(shard, group), read_if_fit("LLEN", prefix .. ":q:" .. group) or 0
  redis.call("UNLINK", prefix .. ":q:" .. group)
  forget_group(shard, group, tier)
  is_purged[group] = true
  if depth > 0 then add_to(prefix .. ":backlog", tier, digits(-depth)) end
  return depth
end

-- What somebody put among its places would keep them for ever.
local function forget_strays(wide)
  local places = prefix .. ":places:" .. wide
  if (read_if_fit("ZCARD", places) or 0) == 0 then return end
  for _, member in ipairs(redis.call("ZRANGE", places, "0", MOST_SEEN - 1)) do
    if wide_of(member) ~= wide then redis.call("ZREM", places, member) end
  end
  free_place(shard, wide)
end

for number = 1, count do
  local group = ARGV[number + 1]
  local depth = throw_away(group)
  for _, started in ipairs(started_of(shard, group)) do
    if seen == MOST_SEEN then break end
    seen, depth = seen + 1, depth + throw_away(started)
  end
  forget_strays(group)
  if depth > 0 then groups, messages = groups + 1, messages + depth end
end
if shard.size.held > 0 then forget_held(is_purged) end
tally(shard, "purged", messages)
return { groups, messages }
