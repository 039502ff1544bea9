-- inspect: a snapshot of the shard for people: tiers, the groups worth a look, workers.
-- FLAGS no-writes
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] limit   integer  groups shown per list, 1..200
-- Reply {now_ms, {tier…}, {waiting…}, {leased…}, {parked…}, {held…}, {worker…}, {counter, value, …}, holders_seen,
--   halted groups, dead letters, ms and reason of a stop or "", the queue's own rate or ""}
--   tier    {tier, groups, due, leased, held and not leased, messages, longest wait ms}
--   group   see includes/group_row.lua
--   worker  {id, last heartbeat ms, {field, value, …}}
-- Keeps: nothing is written; at most 2,000 leases and as many held groups are looked at, and
-- 100 groups per tier that arrived in front, so that the cost does not grow with the number of groups.
--@include open_shard
--@include read
--@include group_row
--@include has_flag
--@include tier_of
local MOST_SEEN, MOST_IN_FRONT = 2000, 100
local shard = open_shard(KEYS[1], { "prio", "attempts", "failures", "errors", "holders", "paused",
  "backlog", "stats", "workers", "dead", "scheduled", "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local prefix, limit = shard.prefix, tonumber(ARGV[1])
local now = string.format("%.3f", shard.now)
local TIER_NAMES = { [0] = "0", "1", "2", "3", "4" }

-- Leases first: how many per tier, and the rows of those that have run longest.
local leased, leased_held, is_leased, rows, cursor, seen = {}, {}, {}, {}, "0", 0
repeat
  local page = redis.call("HSCAN", prefix .. ":holders", cursor, "COUNT", "500")
  cursor = page[1]
  for index = 1, #page[2], 2 do
    local group = page[2][index]
    local token = read("GET", prefix .. ":lock:" .. group)
    seen = seen + 1
    if token then
      local tier = tier_of(shard, group)
      local due = redis.call("ZSCORE", prefix .. ":ready:" .. tier, group) or ""
      leased[tier] = (leased[tier] or 0) + 1
      is_leased[group] = true
      if due == "inf" then leased_held[tier] = (leased_held[tier] or 0) + 1 end
      table.insert(rows, { tonumber(token) or 0, group, tier, due })
    end
  end
until cursor == "0" or seen >= MOST_SEEN
table.sort(rows, function(a, b) return a[1] < b[1] end)
local leased_rows = {}
for index = 1, math.min(limit, #rows) do
  leased_rows[index] = group_row(shard, rows[index][2], rows[index][3], rows[index][4])
end

local tiers, waiting, parked, held = {}, {}, {}, {}
-- Groups between two moments; `among` more are read, since leased ones are left out.
local function collect(into, tier, from, to, among)
  local found = redis.call("ZRANGE", prefix .. ":ready:" .. tier, from, to, "BYSCORE",
    "LIMIT", 0, limit + among, "WITHSCORES")
  local taken = 0
  for index = 1, #found, 2 do
    if taken == limit then break end
    if not is_leased[found[index]] then
      table.insert(into, group_row(shard, found[index], tier, found[index + 1]))
      taken = taken + 1
    end
  end
  return found
end

-- Since when a tier's longest-waiting due group waits. A group that arrived in front has no
-- moment but that of its head's publishing; of those a hundred are looked at.
local function longest_since(ready, oldest)
  local oldest_ms = tonumber(oldest or "")
  if not oldest_ms or oldest_ms > 0 then return oldest_ms end
  local since = tonumber(redis.call("ZRANGE", ready, "(0", now, "BYSCORE", "LIMIT", 0, 1, "WITHSCORES")[2] or now)
  for _, group in ipairs(redis.call("ZRANGE", ready, "-inf", 0, "BYSCORE", "LIMIT", 0, MOST_IN_FRONT)) do
    local head = read("LINDEX", prefix .. ":q:" .. group, 0)
    since = math.min(since, tonumber(string.sub(head or "", 33, 45)) or since)
  end
  return since
end
for tier = 4, 0, -1 do
  local name = TIER_NAMES[tier]
  local ready = prefix .. ":ready:" .. name
  local due = collect(waiting, name, "-inf", now, 0)
  collect(parked, name, "(" .. now, "(+inf", leased[name] or 0)
  local since = longest_since(ready, due[2])
  table.insert(tiers, { tier, redis.call("ZCARD", ready), redis.call("ZCOUNT", ready, "-inf", now),
    leased[name] or 0, redis.call("ZCOUNT", ready, "+inf", "+inf") - (leased_held[name] or 0),
    tonumber(redis.call("HGET", prefix .. ":backlog", name) or "0") or 0,
    since and math.max(0, math.floor(shard.now - since)) or 0 })
end

-- Held groups come from `paused`: one without messages is in no ready set. Halted ones
-- need somebody, so they are shown first.
local halted, paused = {}, {}
cursor = "0"
repeat
  local page = redis.call("HSCAN", prefix .. ":paused", cursor, "COUNT", "500")
  cursor = page[1]
  for index = 1, #page[2], 2 do
    local is_halted = string.sub(page[2][index + 1], 1, 6) == "halted"
    local group = page[2][index]
    if group ~= "" then table.insert(is_halted and halted or paused, group) end -- "": see set_flag
  end
until cursor == "0" or #halted + #paused >= MOST_SEEN
for index = 1, math.min(limit, #halted + #paused) do
  held[index] = group_row(shard, halted[index] or paused[index - #halted])
end

local workers = {}
local registered = redis.call("ZRANGE", prefix .. ":workers", 0, 199, "WITHSCORES")
for index = 1, #registered, 2 do
  table.insert(workers, { registered[index], registered[index + 1],
    read("HGETALL", prefix .. ":worker:" .. registered[index]) })
end
return { shard.now_ms, tiers, waiting, leased_rows, parked, held, workers,
  redis.call("HGETALL", prefix .. ":stats"), seen, #halted, shard.size.dead,
  has_flag(shard, "stopped") and redis.call("HGET", prefix .. ":meta", "stopped") or "",
  has_flag(shard, "rates") and redis.call("HGET", prefix .. ":rates", "") or "" }
