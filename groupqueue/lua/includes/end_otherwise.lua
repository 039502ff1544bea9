-- end_otherwise: what becomes of a head whose delivery ends with another outcome than ack;
-- see settle. Returns the messages that left the group, and when it is due again.
--@include digits
--@include uncount
--@include add_failure
--@include note_error
--@include read_if_fit
--@include set_flag
--@include dead_letter
--@include wide_of
local outcomes = {}

function outcomes.retry(shard, s)
  add_failure(shard, s.group)
  note_error(shard, s.group, s.error)
  return 0, s.now + tonumber(s.value)
end

function outcomes.release(shard, s)
  uncount(shard, s.group)
  if s.error ~= "" then note_error(shard, s.group, s.error) end
  return 0, s.now + tonumber(s.value)
end

-- A head that is given up after a report has one failure more; only poison has none.
local function count_last_failure(shard, s)
  if s.value ~= "poison" then add_failure(shard, s.group) end
end

-- Holds a group until an operator resumes it.
local function hold_back(shard, s)
  -- An operator's pause of the running lease stays noted behind the halt.
  local paused = shard.size.paused > 0 and redis.call("HGET", shard.prefix .. ":paused", s.group)
  redis.call("HSET", shard.prefix .. ":paused", s.group,
    "halted " .. digits(shard.now_ms) .. " " .. s.value .. (paused and "\n" .. paused or ""))
  note_error(shard, s.group, s.error)
  shard.size.paused = 1
  return 0, s.now
end

function outcomes.halt(shard, s)
  count_last_failure(shard, s)
  return hold_back(shard, s)
end

function outcomes.dead(shard, s)
  count_last_failure(shard, s)
  local is_aside, why = dead_letter(shard, s.group, s.tier, s.value, s.error)
  if is_aside then return 1, s.now end
  -- Nothing is lost, nothing overtakes it, and somebody is told.
  s.outcome, s.error = "halt", why .. "; " .. s.error
  return hold_back(shard, s)
end

-- What waits behind the head follows it, by whoever claims next: there may be any number.
function outcomes.dead_group(shard, s)
  -- Not s.id, which is the lease's head: in a batch others went before it.
  local id = string.sub(redis.call("LINDEX", shard.prefix .. ":q:" .. s.group, 0), 1, 32)
  local gone, due = outcomes.dead(shard, s)
  if gone == 0 then return gone, due end
  local whole = wide_of(s.group) or s.group
  local left = read_if_fit("LLEN", shard.prefix .. ":q:" .. whole) or 0
  if left > 0 then
    redis.call("HSET", shard.prefix .. ":doomed", whole, digits(left) .. " " .. id)
    set_flag(shard, "doomed", true)
  end
  return 1, s.now
end

local function end_otherwise(shard, s)
  return outcomes[s.outcome](shard, s)
end
