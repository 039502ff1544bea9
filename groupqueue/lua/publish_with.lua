-- publish_with: publish messages of which some have options; see publish for the rest.
-- FLAGS
-- KEYS[1] prefix      routing key of the shard
-- ARGV[1] publisher   string   who sends, for telling a repetition from a new call
-- ARGV[2] sequence    integer  the publisher's call number; grows by one per call
-- ARGV[3] arrival     fair | front   where a new group queues up
-- ARGV[4] max_depth   integer  messages a group may have waiting; 0 for any number
-- ARGV[5] count       integer  messages, 1..500
-- then per message:
--   group             string
--   tier              0..4     holds when the group is new
--   id                32 hex digits
--   body              bytes    opaque
--   expires_ms        integer or ""  from now; too old to be delivered then
--   due               "" | +delay_ms | epoch_ms   joins its group then
--   hold              0 | 1    joins now and holds its group until it is due
--   dedup_key         string or ""
--   dedup_ms          integer or ""  how long the key is remembered
--   digest            string or ""   stands for the content
--   width             1..1000 or ""  messages of its group that may be in flight at once
-- Reply {"ok", groups made claimable, {number, first id, …}} with the duplicates left out
--   | {"repeated", 0, {number, first id, …}} | {"conflict", number, first id}
--   | {"full", number, depth}; numbers count from 0
-- Keeps: as publish; all messages of a call or none; a duplicate has no effect.
--@include open_shard
--@include digits
--@include read
--@include tally
--@include hint
--@include plan_append
--@include append
--@include is_repeated
--@include note_call
local shard = open_shard(KEYS[1], { "paused", "scheduled", "scheduled:data", "scheduled:held",
  "scheduled:dedup" })
local prefix, count = shard.prefix, tonumber(ARGV[5])
local is_again = is_repeated(shard, ARGV[1], ARGV[2])

local function message(number)
  local at, m = 6 + number * 11, {}
  m.group, m.tier, m.id, m.body = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local expires_ms, due = ARGV[at + 4], ARGV[at + 5]
  m.expires = expires_ms ~= "" and digits(shard.now_ms + tonumber(expires_ms)) or "0000000000000"
  if due ~= "" then
    m.due = tonumber(due) + (string.sub(due, 1, 1) == "+" and shard.now_ms or 0)
    if m.due <= shard.now_ms then m.due = nil end
  end
  m.hold, m.dedup_key, m.dedup_ms, m.digest = ARGV[at + 6] == "1", ARGV[at + 7], ARGV[at + 8], ARGV[at + 9]
  m.width = ARGV[at + 10]
  m.element = m.id .. digits(shard.now_ms) .. m.expires .. m.body
  return m
end

-- The first id published under a message's key, and whether that was other content.
local seen = {}
local function first_of(m)
  if m.dedup_key == "" then return nil end
  local noted = seen[m.dedup_key] or read("GET", prefix .. ":dedup:" .. m.dedup_key)
  seen[m.dedup_key] = noted or (m.id .. m.digest)
  if not noted or string.sub(noted, 1, 32) == m.id then return nil end
  return string.sub(noted, 1, 32), string.sub(noted, 33) ~= m.digest
end

local fresh, later, duplicates, groups, by_group = {}, {}, {}, {}, {}
for number = 0, count - 1 do
  local m = message(number)
  local first, is_other = first_of(m)
  if is_other and is_again then first = nil end -- it was stored; the key is another's by now
  if first then
    if is_other then return { "conflict", number, first } end
    duplicates[#duplicates + 1], duplicates[#duplicates + 2] = number, first
  else
    fresh[#fresh + 1] = m
    m.number = number
  end
end
if is_again then return { "repeated", 0, duplicates } end

for _, m in ipairs(fresh) do
  if m.due and not m.hold then
    later[#later + 1] = m
  else
    local entry = by_group[m.group]
    if not entry then
      entry = { first_tier = m.tier, held_until = m.due, first_number = m.number }
      by_group[m.group] = entry
      groups[#groups + 1] = m.group
    end
    if m.width ~= "" then entry.width = m.width end
    entry[#entry + 1] = m.element
  end
end
local plan, max_depth = plan_append(shard, groups, by_group, ARGV[3]), tonumber(ARGV[4])
for index, group in ipairs(groups) do
  if max_depth > 0 and plan.depths[index] + #by_group[group] > max_depth then
    return { "full", by_group[group].first_number, plan.depths[index] }
  end
end

local claimable, earliest, is_sooner = append(shard, plan), nil, false
if shard.size.scheduled > 0 then
  earliest = redis.call("ZRANGE", prefix .. ":scheduled", 0, 0, "WITHSCORES")[2]
end
for _, m in ipairs(fresh) do
  if m.due then
    redis.call("ZADD", prefix .. ":scheduled", digits(m.due), m.id)
    if m.hold then -- it lies in its group already
      redis.call("HSET", prefix .. ":scheduled:held", m.id, m.group)
    else
      redis.call("HSET", prefix .. ":scheduled:data", m.id,
        string.format("M%s%04d%04d", m.tier, tonumber(m.width) or 0, #m.group) .. m.group .. m.element)
    end
    if m.dedup_key ~= "" then redis.call("HSET", prefix .. ":scheduled:dedup", m.id, m.dedup_key) end
    is_sooner = is_sooner or not earliest or m.due < tonumber(earliest)
  end
  if m.dedup_key ~= "" then
    redis.call("SET", prefix .. ":dedup:" .. m.dedup_key, m.id .. m.digest, "PX", m.dedup_ms)
  end
end
note_call(shard, ARGV[1], ARGV[2])
tally(shard, "published", #fresh)
tally(shard, "duplicates", count - #fresh)
-- Somebody has to learn of an earlier moment than all so far.
if claimable > 0 or is_sooner or shard.has_freed then hint(shard) end
return { "ok", claimable, duplicates }
