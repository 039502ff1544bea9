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

local function checked(shard, settlements, is_strict)
  local reads = is_strict and read or read_if_fit
  local words, accepted, groups, seen = {}, {}, {}, {}
  for number, s in ipairs(settlements) do
    local head = false
    words[number * 2 - 1], words[number * 2] = "stale", 0
    s.list = shard.prefix .. ":q:" .. s.group
    if not seen[s.group] and reads("GET", shard.prefix .. ":lock:" .. s.group) == s.token then
      head = reads("LINDEX", s.list, "0")
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
      accepted[#accepted + 1], groups[#groups + 1] = s, s.group
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
  for index, s in ipairs(accepted) do
    -- Groups freed together queue up in the order given, a µs apart, none in the future, and
    -- what was started of a wide group before what was not.
    s.now = shard.now - (#accepted - index + 1) / 1000
    local finished = s.together and finish_first(shard, s) or 0
    local gone, due = tonumber(s.done), s.now
    if s.outcome == "ack" then
      redis.call("LPOP", s.list, s.done)
    else
      gone, due = end_otherwise(shard, s)
    end
    local left = redis.call("LLEN", s.list)
    places[index] = { s.group, s.tier, score(due), left }
    words[s.number * 2 - 1], words[s.number * 2] = "ok", left
    if gone > 0 then heads[#heads + 1] = s.group end
    if gone + finished > 0 then removed[s.tier] = (removed[s.tier] or 0) + gone + finished end
    count(COUNTERS[s.outcome], math.max(gone, 1))
    count("acked", finished)
    -- What a lease of several holds beside that is handed back.
    local begun = tonumber(s.done) + (s.outcome == "ack" and 0 or 1)
    count("released", math.max(0, tonumber(s.together or "0") - begun))
  end
  forget_heads(shard, heads)
  end_leases(shard, places)
  for tier, gone in pairs(removed) do
    add_to(shard.prefix .. ":backlog", tier, digits(-gone))
  end
  for counter, counted in pairs(tallies) do tally(shard, counter, counted) end
  return words
end
