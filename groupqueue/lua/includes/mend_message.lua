-- mend_message: put what is noted of a scheduled message right, given what message_faults saw.
-- Returns whether it could. Keeps: a message that is noted nowhere else is not lost.
--@include digits
--@include forget_scheduled
local function mend_message(shard, seen, word)
  local prefix, id = shard.prefix, seen.id
  if word == "bad-schedule" then return false end
  if word == "never-due" then
    redis.call("ZADD", prefix .. ":scheduled", digits(shard.now_ms), id)
  elseif word == "scheduled-twice" then
    if seen.is_there == nil then return false end
    redis.call("HDEL", prefix .. (seen.is_there and ":scheduled:data" or ":scheduled:held"), id)
    redis.call("ZADD", prefix .. ":scheduled", "NX", digits(shard.now_ms), id)
  else
    forget_scheduled(shard, { id })
  end
  return true
end
