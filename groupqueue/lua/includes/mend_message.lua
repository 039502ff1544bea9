-- mend_message: put what is noted of a scheduled message right, given what message_faults saw.
-- Returns whether it could. Keeps: a message that is noted nowhere else is not lost.
--@include digits
--@include forget_scheduled

-- Puts what is no message, and would not be looked at again, where people see it: among the dead
-- letters. Returns whether these took it.
local function set_aside(shard, seen)
  local tier, length = string.match(seen.data, "^M([0-4])%d%d%d%d(%d%d%d%d)")
  local upto = 10 + (tonumber(length) or 0)
  local added = redis.pcall("XADD", shard.prefix .. ":dead", "*", "group", string.sub(seen.data, 11, upto), "tier", tier or "",
    "element", string.sub(seen.data, length and upto + 1 or 1), "reason", "data-alone",
    "error", "it was noted as scheduled message " .. seen.id .. ", for no moment", "deliveries", "0", "failures", "0")
  return type(added) == "string"
end

local function mend_message(shard, seen, word)
  local prefix, id = shard.prefix, seen.id
  if word == "bad-schedule" then return false end
  if word == "never-due" or word == "bad-moment" then
    redis.call("ZADD", prefix .. ":scheduled", digits(shard.now_ms), id)
  elseif word == "data-alone" then
    if not set_aside(shard, seen) then return false end
    forget_scheduled(shard, { id })
  elseif word == "scheduled-twice" then
    if seen.is_there == nil then return false end
    redis.call("HDEL", prefix .. (seen.is_there and ":scheduled:data" or ":scheduled:held"), id)
    redis.call("ZADD", prefix .. ":scheduled", "NX", digits(shard.now_ms), id)
  else
    forget_scheduled(shard, { id })
  end
  return true
end
