-- settle: end leases whose token still holds and whose head is the named message.
-- Takes {{number (its own), outcome, group, token, id, done, together, value, error}, …}:
--   outcome  ack | retry | release | dead | dead_group | halt
--   together of a lease of several messages, how many it holds, or -1 for one alone after a
--            crash (see lease_more); else nil
--   done     of a lease of several, how many are finished, before the one that the outcome is
--            about
--   value    retry, release: delay in ms; dead, dead_group, halt: the reason
--   error    the error's text, for operators; of a release perhaps none
-- and whether a group's own key of a wrong type is an error; else that group's lease is lost,
-- and the others are settled.
-- Returns a flat list of word, messages left: "ok" | "stale" | "moved".
-- Everything is checked before the first write; a group settles once per call.
--@include digits
--@include add_to
--@include score
--@include tally
--@include read
--@include read_if_fit
--@include tier_of
--@include forget_heads
--@include end_leases
--@lazy finish_first
--@lazy end_otherwise
local COUNTERS = { ack = "acked", retry = "retried", release = "released", dead = "dead",
  dead_group = "dead", halt = "halted" }

-- The words for the settlements so far, and those whose token holds and whose head is theirs.
local function checked(shard, settlements, is_strict)
  local reads = is_strict and read or read_if_fit
  local words, accepted, groups, locks, seen = {}, {}, {}, {}, {}
  local list, lock = shard.prefix .. ":q:", shard.prefix .. ":lock:"
  for number, s in ipairs(settlements) do locks[number] = lock .. s.group end
  local tokens = locks[2] and redis.call("MGET", unpack(locks)) or { locks[1] and reads("GET", locks[1]) }
  for number, s in ipairs(settlements) do
    local word, group, head = "stale", s.group, nil
    s.list = list .. group
    if tokens[number] == s.token and not seen[group] then
      head, word = reads("LINDEX", s.list, "0"), "moved"
    end
    words[number * 2 - 1], words[number * 2] = word, 0
    if s.outcome == "dead" or s.outcome == "dead_group" then
      read("XLEN", shard.prefix .. ":dead")
      if s.outcome == "dead_group" then read("HLEN", shard.prefix .. ":doomed") end
    end
    if head and string.sub(head, 1, 32) == s.id then
      seen[group] = true
      accepted[#accepted + 1], groups[#groups + 1] = s, group
    end
  end
  if #groups > 0 then
    local tiers = read("HMGET", shard.prefix .. ":prio", unpack(groups))
    shard.knows_tiers = true
    for index, s in ipairs(accepted) do s.tier = tier_of(shard, s.group, tiers[index]) end
  end
  return words, accepted
end

local function settle(shard, settlements, is_strict)
  local words, accepted = checked(shard, settlements, is_strict)
  local places, heads, tallies, removed = {}, {}, {}, {}
  local function count(counter, number) tallies[counter] = (tallies[counter] or 0) + number end
  -- Groups freed together queue up in the order given, a µs apart, none in the future, and
  -- what was started of a wide group before what was not.
  local first = shard.now - (#accepted + 1) / 1000
  for index, s in ipairs(accepted) do
    s.now = first + index / 1000
    local finished, gone, due = 0, 1, s.now
    if s.together then finished, gone = finish_first(shard, s), tonumber(s.done) end
    if s.outcome ~= "ack" then
      gone, due = end_otherwise(shard, s)
    elseif gone == 1 then
      redis.call("LPOP", s.list)
    else
      redis.call("LPOP", s.list, s.done)
    end
    local left, number = redis.call("LLEN", s.list), s.number
    places[index] = { s.group, s.tier, score(due), left }
    words[number * 2 - 1], words[number * 2] = "ok", left
    if gone > 0 then heads[#heads + 1] = s.group end
    if gone + finished > 0 then removed[s.tier] = (removed[s.tier] or 0) + gone + finished end
    count(COUNTERS[s.outcome], gone > 1 and gone or 1)
    if s.together then
      count("acked", finished)
      -- What a lease of several holds beside that is handed back.
      local begun = tonumber(s.done) + (s.outcome == "ack" and 0 or 1)
      count("released", math.max(0, tonumber(s.together) - begun))
    end
  end
  forget_heads(shard, heads)
  end_leases(shard, places)
  for tier, gone in pairs(removed) do
    add_to(shard.prefix .. ":backlog", tier, digits(-gone))
  end
  for counter, counted in pairs(tallies) do tally(shard, counter, counted) end
  return words
end
