-- end_otherwise: what becomes of a head whose delivery ends with another outcome than ack;
-- see settle. Returns the messages that left the group, and when it is due again.
--@include digits
--@include uncount
--@include add_failure
--@include note_error
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
  local whole = wide_of(s.group) or s.group
  local left = redis.call("LLEN", shard.prefix .. ":q:" .. whole)
  if left > 0 then
    redis.call("HSET", shard.prefix .. ":doomed", whole, digits(left) .. " " .. id)
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
  note_error(shard, s.group, s.error)
  shard.size.paused = 1
  return 0, s.now
end

local function end_otherwise(shard, s)
  return outcomes[s.outcome](shard, s)
end
