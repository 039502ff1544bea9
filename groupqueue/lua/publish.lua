-- publish: append messages to their groups, all of them or none.
-- FLAGS
-- KEYS[1] prefix      routing key of the shard
-- ARGV[1] publisher   string   who sends, for telling a repetition from a new call
-- ARGV[2] sequence    integer  the publisher's call number; grows by one per call
-- ARGV[3] arrival     fair | front   where a new group queues up
-- ARGV[4] count       integer  messages, 1..1000
-- then per message:
--   group             string
--   tier              0..4     holds when the group is new
--   id                32 hex digits
--   body              bytes    opaque
-- Reply {"ok", groups made claimable} | {"repeated"}
-- Keeps: a group stands in exactly one tier; a leased, parked or paused group is not
-- disturbed; a repeated call has no second effect. Refused by the server when it is
-- out of memory.
--@include open_shard
--@include digits
--@include score
--@include tally
--@include hint
--@include tier_of
--@include read
local NEVER = "0000000000000"
local PUBLISHER_KEPT_MS = "600000" -- far longer than a client repeats a call

local function gather(shard, count)
  local groups, by_group, stamp = {}, {}, digits(shard.now_ms)
  for at = 5, 4 + count * 4, 4 do
    local group = ARGV[at]
    local entry = by_group[group]
    if not entry then
      entry = { first_tier = ARGV[at + 1] }
      by_group[group] = entry
      table.insert(groups, group)
    end
    table.insert(entry, ARGV[at + 2] .. stamp .. NEVER .. ARGV[at + 3])
  end
  return groups, by_group
end

local shard = open_shard(KEYS[1], { "prio", "backlog", "stats", "minute", "wake", "paused",
  "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local prefix, publisher = shard.prefix, shard.prefix .. ":publisher:" .. ARGV[1]
local last = read("GET", publisher)
if last and tonumber(last) >= tonumber(ARGV[2]) then return { "repeated" } end

local count = tonumber(ARGV[4])
local groups, by_group = gather(shard, count)
local tiers = redis.call("HMGET", prefix .. ":prio", unpack(groups))
local depths = {}
for index, group in ipairs(groups) do depths[index] = read("LLEN", prefix .. ":q:" .. group) end
local paused = shard.size.paused > 0 and redis.call("HMGET", prefix .. ":paused", unpack(groups))

local new, ready, backlog = {}, {}, {}
for index, group in ipairs(groups) do
  local entry = by_group[group]
  -- A group that has messages but no tier has lost it by hand.
  local tier = tiers[index] or tier_of(shard, group, depths[index] == 0 and entry.first_tier)
  if not tiers[index] then
    table.insert(new, group)
    table.insert(new, tier)
  end
  -- New groups queue up in the order given, a µs apart, none in the future.
  local due = ARGV[3] == "front" and "0" or score(shard.now - (#groups - index) / 1000)
  if paused and paused[index] then due = "+inf" end
  ready[tier] = ready[tier] or {}
  table.insert(ready[tier], due)
  table.insert(ready[tier], group)
  backlog[tier] = (backlog[tier] or 0) + #entry
  redis.call("RPUSH", prefix .. ":q:" .. group, unpack(entry))
end
if #new > 0 then
  for from = 1, #new, 1000 do
    redis.call("HSET", prefix .. ":prio", unpack(new, from, math.min(from + 999, #new)))
  end
end
local claimable = 0
for tier, members in pairs(ready) do
  for from = 1, #members, 1000 do
    claimable = claimable + redis.call("ZADD", prefix .. ":ready:" .. tier, "NX",
      unpack(members, from, math.min(from + 999, #members)))
  end
end
for tier, added in pairs(backlog) do
  redis.call("HINCRBY", prefix .. ":backlog", tier, digits(added))
end
redis.call("SET", publisher, ARGV[2], "PX", PUBLISHER_KEPT_MS)
tally(shard, "published", count)
if claimable > 0 then hint(shard) end
return { "ok", claimable }
