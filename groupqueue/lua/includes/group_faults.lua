-- group_faults: what is wrong with a group, given what see_group saw: {{word, detail}, …}.
-- Each rule says what is wrong as a detail, perhaps an empty one, or nil. What the words mean,
-- and whether repair mends them, is in core/audits.py.
--@include digits
--@include is_due_moment
--@include is_token
--@include noted_faults
--@include wanted_place
local NEAR_MS = 1000 -- what ends or begins so soon is left alone
local MOST_IN_FLIGHT = 1000 -- no call takes more
local LONGEST_LEASE_MS = 1000000000000 -- no call takes more

-- Of a group without messages nothing may be left but an operator's pause.
local function left_over(seen)
  local names = {}
  for _, stand in ipairs(seen.stands) do table.insert(names, "ready:" .. stand.tier) end
  local function note(name, value) if value then table.insert(names, name) end end
  note("prio", seen.started == 0 and seen.tier)
  note("attempts", seen.attempts)
  note("failures", seen.failures)
  note("errors", seen.errors)
  note("holders", seen.holder)
  note("doomed", seen.doomed)
  note("places", seen.place)
  note("wide", seen.width and seen.started == 0)
  note("paused", seen.paused and string.sub(seen.paused, 1, 6) == "halted")
  return #names > 0 and table.concat(names, ", ") or nil
end

local function is_number(text, pattern)
  return not text or (string.find(text, pattern) ~= nil and #text < 36) -- two at most
end

local function bad_width(seen)
  if seen.started == 0 and not seen.width then return nil end
  local is_sound = string.find(seen.width or "", "^[1-9]%d*$") and tonumber(seen.width) <= MOST_IN_FLIGHT
  return not is_sound and string.sub(seen.width or "none", 1, 50) or nil
end

local function bad_tier(seen)
  return not string.find(seen.tier or "", "^[0-4]$") and (seen.tier or "none") or nil
end

local RULES_WHEN_EMPTY = {
  { "no-tier", function(seen) return seen.started > 0 and bad_tier(seen) or nil end },
  { "bad-width", bad_width },
  { "lock-without-messages", function(seen) return seen.is_leased and "" or nil end },
  { "left-over", left_over },
}
local RULES_WITH_MESSAGES = {
  { "not-ready", function(seen) return #seen.stands == 0 and "" or nil end },
  { "several-tiers", function(seen)
    local tiers = {}
    for index, stand in ipairs(seen.stands) do tiers[index] = stand.tier end
    return #tiers > 1 and table.concat(tiers, ", ") or nil
  end },
  { "no-tier", bad_tier },
  { "wrong-tier", function(seen)
    local stand = #seen.stands == 1 and seen.stands[1]
    return stand and string.find(seen.tier or "", "^[0-4]$") and stand.tier ~= seen.tier
      and seen.tier .. ", " .. stand.tier or nil
  end },
  { "bad-token", function(seen, shard)
    return seen.is_leased and not is_token(shard, seen.token) and string.sub(seen.token, 1, 50) or nil
  end },
  { "lock-without-expiry", function(seen) return seen.left_ms == -1 and "" or nil end },
  { "lock-too-long", function(seen) return seen.left_ms > LONGEST_LEASE_MS and digits(seen.left_ms) or nil end },
  { "not-the-deadline", function(seen, shard)
    local due = not seen.paused and seen.left_ms > NEAR_MS and seen.stands[1] and seen.stands[1].due
    if not due or due == "inf" then return nil end
    local apart = tonumber(due) - shard.now_ms - seen.left_ms
    return math.abs(apart) > NEAR_MS and digits(apart) or nil
  end },
  -- A lease that ended in order took `holders` along; one that ran out left no moment to come,
  -- unless a rate made one.
  { "lock-gone", function(seen, shard)
    local due = seen.stands[1] and tonumber(seen.stands[1].due)
    local is_waiting = due and seen.stands[1].due ~= "inf" and due > shard.now_ms + NEAR_MS
    return is_waiting and seen.holder and not seen.is_leased and not seen.is_rated
      and not seen.held_until and seen.holder or nil
  end },
  { "bad-moment", function(seen, shard)
    local due = not seen.is_leased and not seen.paused and seen.stands[1] and seen.stands[1].due
    return due and due ~= "inf" and not is_due_moment(shard, seen, due) and due or nil
  end },
  { "held-without-pause", function(seen)
    return not seen.paused and seen.stands[1] and seen.stands[1].due == "inf" and "" or nil
  end },
  { "paused-but-due", function(seen)
    return seen.paused and seen.stands[1] and seen.stands[1].due ~= "inf" and "" or nil
  end },
  { "too-early", function(seen)
    local due = seen.held_until and not seen.is_leased and not seen.doomed and seen.stands[1] and seen.stands[1].due
    return due and due ~= "inf" and tonumber(due) < seen.held_until and digits(seen.held_until) or nil
  end },
  { "bad-width", bad_width },
  { "no-place", function(seen, shard)
    return seen.has_places and seen.place ~= wanted_place(shard, seen) and (seen.place or "none") or nil
  end },
  { "bad-counters", function(seen)
    return not (is_number(seen.attempts, "^[1-9]%d*$") and is_number(seen.failures, "^%d+ %d+$"))
      and string.sub(seen.attempts or "", 1, 20) .. "; " .. string.sub(seen.failures or "", 1, 40) or nil
  end },
}

local function group_faults(shard, seen)
  local faults = seen and noted_faults(seen) or {}
  for _, rule in ipairs(seen and (seen.depth == 0 and RULES_WHEN_EMPTY or RULES_WITH_MESSAGES) or {}) do
    local detail = rule[2](seen, shard)
    if detail then table.insert(faults, { rule[1], detail }) end
  end
  return faults
end
