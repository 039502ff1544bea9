-- repair: judge as audit does, and mend what is wrong in the same step.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] kind    group | message (scheduled ones) | key | queue
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
--@include hint
local KEPT_FOR_MS = "3600000"

local shard = open_shard(KEYS[1], { "prio", "attempts", "failures", "errors", "holders", "paused", "doomed", "wide",
  "rates", "backlog", "stats", "meta", "fence", "wake", "scheduled", "scheduled:data", "scheduled:held",
  "scheduled:dedup", "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
shard.size.held = shard.size["scheduled:held"] -- open_shard may take it for none while data is missing
allow_reading(shard)

-- Each returns the faults that it has mended.
local mends = {}

function mends.group(name)
  local faults, seen = judge(shard, "group", name)
  local has_fault = {}
  for _, fault in ipairs(faults) do has_fault[fault[1]] = true end
  if #faults > 0 then mend_group(shard, seen, has_fault) end
  return faults
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

function mends.key(name)
  local key = shard.prefix .. ":" .. name
  local kind, expires = kind_of(name)
  if not expires or redis.call("TYPE", key).ok ~= kind or redis.call("PTTL", key) ~= -1 then return {} end
  redis.call("PEXPIRE", key, KEPT_FOR_MS)
  return { { "no-expiry", "" } }
end

local judged, mended = 0, {}
for number = 1, tonumber(ARGV[2]) do
  if shard.may_read <= 0 or shard.may_read_bytes <= 0 then break end
  local name = ARGV[number + 2]
  for _, fault in ipairs(mends[ARGV[1]](name)) do table.insert(mended, { name, fault[1], fault[2] }) end
  judged = judged + 1
end
if #mended > 0 then hint(shard) end
return { judged, mended }
