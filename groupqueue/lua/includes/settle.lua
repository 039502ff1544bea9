-- settle: end leases whose token still holds and whose head is the named message.
-- Takes {{outcome, group, token, id, span, value, error}, …}:
--   outcome  ack | retry | release | dead | dead_group | halt
--   span     "" for a lease of one message, else "<done> <together>": how many messages of
--            the lease are finished, before the one that the outcome is about; and how many
--            it holds, or -1 for one alone after a crash (see lease_more)
--   value    retry, release: delay in ms; dead, dead_group, halt: the reason
--   error    the error's text, for operators; of a release perhaps none
-- and whether a group's own key of a wrong type is an error; else that group's lease is lost,
-- and the others are settled.
-- Returns a flat list of word, messages left: "ok" | "stale" | "moved".
-- Everything is checked before the first write; a group settles once per call.
--@include digits
--@include score
--@include tally
--@include read
--@include read_if_fit
--@include uncount
--@include add_failure
--@include set_flag
--@include tier_of
--@include forget_heads
--@include end_leases
--@include dead_letter
--@include finish_first
local outcomes = {}

-- Each outcome returns the messages that left the group and when it is due again.
function outcomes.ack(shard, s)
  redis.call("LPOP", shard.prefix .. ":q:" .. s.group, s.done)
  return tonumber(s.done), s.now
end

function outcomes.retry(shard, s)
  add_failure(shard, s.group)
  redis.call("HSET", shard.prefix .. ":errors", s.group, s.error)
  return 0, s.now + tonumber(s.value)
end

function outcomes.release(shard, s)
  uncount(shard, s.group)
  if s.error ~= "" then redis.call("HSET", shard.prefix .. ":errors", s.group, s.error) end
  return 0, s.now + tonumber(s.value)
end

-- A head that is given up after a report has one failure more; only poison has none.
local function count_last_failure(shard, s)
  if s.value ~= "poison" then add_failure(shard, s.group) end
end

function outcomes.dead(shard, s)
  count_last_failure(shard, s)
  dead_letter(shard, s.group, s.tier, s.value, s.error)
  return 1, s.now
end

-- What waits behind the head follows it, by whoever claims next: there may be any number.
function outcomes.dead_group(shard, s)
  -- Not s.id, which is the lease's head: in a batch others went before it.
  local id = string.sub(redis.call("LINDEX", shard.prefix .. ":q:" .. s.group, 0), 1, 32)
  outcomes.dead(shard, s)
  local left = redis.call("LLEN", shard.prefix .. ":q:" .. s.group)
  if left > 0 then
    redis.call("HSET", shard.prefix .. ":doomed", s.group, digits(left) .. " " .. id)
    set_flag(shard, "doomed", true)
  end
  return 1, s.now
end

function outcomes.halt(shard, s)
  count_last_failure(shard, s)
  -- An operator's pause of the running lease stays noted behind the halt.
  local paused = shard.size.paused > 0 and redis.call("HGET", shard.prefix .. ":paused", s.group)
  redis.call("HSET", shard.prefix .. ":paused", s.group,
    "halted " .. digits(shard.now_ms) .. " " .. s.value .. (paused and "\n" .. paused or ""))
  redis.call("HSET", shard.prefix .. ":errors", s.group, s.error)
  shard.size.paused = 1
  return 0, s.now
end

local COUNTERS = { ack = "acked", retry = "retried", release = "released", dead = "dead",
  dead_group = "dead", halt = "halted" }

local function checked(shard, settlements, is_strict)
  local function reads(command, key, ...)
    if is_strict then return read(command, key, ...) end
    return read_if_fit(command, key, ...)
  end
  local words, accepted, groups, seen = {}, {}, {}, {}
  for number, s in ipairs(settlements) do
    local head = false
    words[number * 2 - 1], words[number * 2] = "stale", 0
    if not seen[s.group] and reads("GET", shard.prefix .. ":lock:" .. s.group) == s.token then
      head = reads("LINDEX", shard.prefix .. ":q:" .. s.group, 0)
      words[number * 2 - 1] = "moved"
    end
    if s.outcome == "dead" or s.outcome == "dead_group" then
      read("XLEN", shard.prefix .. ":dead")
      if s.outcome == "dead_group" then read("HLEN", shard.prefix .. ":doomed") end
    end
    s.done = "1"
    if s.span ~= "" then s.done, s.together = string.match(s.span, "^(%d+) (%S+)$") end
    if head and string.sub(head, 1, 32) == s.id then
      seen[s.group] = true
      s.number = number
      table.insert(accepted, s)
      table.insert(groups, s.group)
    end
  end
  if #groups > 0 then
    local tiers = redis.call("HMGET", shard.prefix .. ":prio", unpack(groups))
    for index, s in ipairs(accepted) do s.tier = tier_of(shard, s.group, tiers[index]) end
  end
  return words, accepted
end

local function settle(shard, settlements, is_strict)
  local words, accepted = checked(shard, settlements, is_strict)
  local places, heads, tallies, removed = {}, {}, {}, {}
  local function count(counter, number) tallies[counter] = (tallies[counter] or 0) + number end
  for index, s in ipairs(accepted) do
    -- Groups freed together queue up in the order given, a µs apart, none in the future.
    s.now = shard.now - (#accepted - index) / 1000
    local finished = s.together and finish_first(shard, s) or 0
    local gone, due = outcomes[s.outcome](shard, s)
    local left = redis.call("LLEN", shard.prefix .. ":q:" .. s.group)
    places[index] = { s.group, s.tier, score(due), left }
    words[s.number * 2 - 1], words[s.number * 2] = "ok", left
    if gone > 0 then table.insert(heads, s.group) end
    if gone + finished > 0 then removed[s.tier] = (removed[s.tier] or 0) + gone + finished end
    count(COUNTERS[s.outcome], math.max(gone, 1))
    count("acked", finished)
  end
  forget_heads(shard, heads)
  end_leases(shard, places)
  for tier, gone in pairs(removed) do
    redis.call("HINCRBY", shard.prefix .. ":backlog", tier, digits(-gone))
  end
  for counter, counted in pairs(tallies) do tally(shard, counter, counted) end
  return words
end
