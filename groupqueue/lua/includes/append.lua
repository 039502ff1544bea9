-- append: put the messages of a plan at the end of their groups; see plan_append.
-- Returns how many groups became claimable.
-- Keeps: a group stands in one tier; a leased, parked or paused group is not disturbed.
--@include digits
--@include add_to
--@include score
--@lazy widen
-- Sends a command with values by the thousand, as `unpack` sees no more at once; returns
-- the sum of the replies.
local function in_thousands(values, command, key, option)
  local sum = 0
  for from = 1, #values, 1000 do
    local upto = math.min(from + 999, #values)
    sum = sum + (option and redis.call(command, key, option, unpack(values, from, upto))
      or redis.call(command, key, unpack(values, from, upto)))
  end
  return sum
end

-- When a group is due that was not waiting yet, as text.
local function due_moment(shard, plan, index, entry)
  if plan.paused and plan.paused[index] then return "+inf" end
  if entry.held_until and plan.depths[index] == 0 then return digits(entry.held_until) end
  -- New groups queue up in the order given, a µs apart, none in the future.
  return plan.arrival == "front" and "0" or score(shard.now - (#plan.groups - index) / 1000)
end

local function append(shard, plan)
  local prefix, ready, backlog, claimable = shard.prefix, {}, {}, 0
  for index, group in ipairs(plan.groups) do
    local entry, tier = plan.by_group[group], plan.tiers[index]
    local members = ready[tier] or {}
    ready[tier] = members
    members[#members + 1], members[#members + 2] = due_moment(shard, plan, index, entry), group
    backlog[tier] = (backlog[tier] or 0) + #entry
    redis.call("RPUSH", prefix .. ":q:" .. group, unpack(entry))
    if entry.width then widen(shard, group, entry.width) end
  end
  in_thousands(plan.new, "HSET", prefix .. ":prio")
  for tier, members in pairs(ready) do
    claimable = claimable + in_thousands(members, "ZADD", prefix .. ":ready:" .. tier, "NX")
    add_to(prefix .. ":backlog", tier, digits(backlog[tier]))
  end
  return claimable
end
