-- repair: judge as audit does, and mend what is wrong in the same step.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] kind    group | message (scheduled ones) | key | worker | queue | flags (of the queue) |
--                 places:<wide group> (its members) | backlog (that are no numbers: tier, messages)
-- ARGV[2] count   integer  names, 1..100
-- then per name: name
-- Reply {names judged, {{name, word, detail}, …} of what was mended}; ask again for the others
-- Keeps: what is sound is not touched; no message is thrown away, and the order of a group stays.
--@include open_shard
--@include judge
--@include allow_reading
--@include mend_group
--@include mend_message
--@include mend_queue
--@include kind_of
--@include bad_counters
--@include bad_value
--@include free_place
--@include is_whole_number
--@include hint
local KEPT_FOR_MS = "3600000"

local shard = open_shard(KEYS[1], { "prio", "attempts", "failures", "errors", "holders", "paused", "doomed", "wide",
  "rates", "backlog", "stats", "meta", "fence", "wake", "scheduled", "scheduled:data", "scheduled:held",
  "scheduled:dedup", "workers", "dead", "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
shard.size.held = shard.size["scheduled:held"] -- open_shard may take it for none while data is missing
allow_reading(shard)

-- Each returns the faults that it has mended.
local mends = {}

local function mend_judged(faults, seen)
  local has_fault = {}
  for _, fault in ipairs(faults) do has_fault[fault[1]] = true end
  if #faults > 0 then mend_group(shard, seen, has_fault) end
  return faults
end

function mends.group(name)
  return mend_judged(judge(shard, "group", name))
end

local function mended_of(kind, name, put_right)
  local faults, seen = judge(shard, kind, name)
  local mended = {}
  for _, fault in ipairs(faults) do
    if put_right(seen, fault) then table.insert(mended, fault) end
  end
  return mended
end

function mends.message(name)
  return mended_of("message", name, function(seen, fault) return mend_message(shard, seen, fault[1]) end)
end

function mends.queue(name)
  return mended_of("queue", name, function(seen, fault) return mend_queue(shard, seen, fault[1], fault[2]) end)
end

function mends.flags(name)
  return mended_of("flags", name, function(seen, fault) return mend_queue(shard, seen, fault[1], fault[2]) end)
end

-- Of so many groups that they are not counted in one step, whoever asks has counted them.
function mends.backlog(counted)
  local tier, messages = string.match(counted, "^([0-4]) (%d+)$")
  local noted = redis.call("HGET", shard.prefix .. ":backlog", tier) or "0"
  if is_whole_number(noted) then return {} end
  redis.call("HSET", shard.prefix .. ":backlog", tier, messages)
  return { { "wrong-backlog", tier .. ", " .. string.sub(noted, 1, 50) .. ", " .. messages, "" } }
end

function mends.worker(name)
  return mended_of("worker", name, function(worker)
    return redis.call("ZREM", shard.prefix .. ":workers", worker) == 1 -- one that is alive enters itself again
  end)
end

function mends.places(member, wide)
  local faults, seen = judge(shard, "places:" .. wide, member)
  if seen then return mend_judged(faults, seen) end
  for _, fault in ipairs(faults) do
    redis.call("ZREM", shard.prefix .. ":places:" .. wide, fault[2])
    free_place(shard, wide)
  end
  return faults
end

function mends.key(name)
  local key = shard.prefix .. ":" .. name
  local kind, expires, per = kind_of(name)
  local mended = {}
  if not expires or redis.call("TYPE", key).ok ~= kind then return mended end
  local value = bad_value(shard, name, per)
  if value then
    redis.call("DEL", key)
    return { { "bad-value", value } }
  end
  if redis.call("PTTL", key) == -1 then
    redis.call("PEXPIRE", key, KEPT_FOR_MS)
    table.insert(mended, { "no-expiry", "" })
  end
  for _, counter in ipairs(per == "stats" and bad_counters(key) or {}) do
    redis.call("HDEL", key, counter[1])
    table.insert(mended, { "bad-counter", table.concat(counter, " ") })
  end
  return mended
end

local judged, mended = 0, {}
local kind, wide = string.match(ARGV[1], "^(%a+):?(.*)$")
for number = 1, tonumber(ARGV[2]) do
  if shard.may_read <= 0 or shard.may_read_bytes <= 0 then break end
  local name = ARGV[number + 2]
  for _, fault in ipairs(mends[kind](name, wide)) do table.insert(mended, { fault[3] or name, fault[1], fault[2] }) end
  judged = judged + 1
end
if #mended > 0 then hint(shard) end
return { judged, mended }
