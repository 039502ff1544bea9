-- mend_queue: put right what a shard has one of, given what queue_faults saw; one fault of it.
-- Returns whether it could. Keeps: a queue that was stopped stays so, until it is started.
--@include digits
--@include has_flag
--@include set_flag
local function mend_flag(shard, word)
  if word == "stopped" and has_flag(shard, word) then
    redis.call("HSET", shard.prefix .. ":meta", "stopped", digits(shard.now_ms) .. " why is not known any more")
  else
    set_flag(shard, word, not has_flag(shard, word))
  end
end

local function mend_queue(shard, seen, word, detail)
  local prefix = shard.prefix
  if word == "wrong-flag" then
    mend_flag(shard, detail)
  elseif word == "bad-fence" then
    redis.call("DEL", prefix .. ":fence") -- tokens go on from the clock
  elseif word == "bad-counter" then
    redis.call("HDEL", prefix .. ":stats", unpack(seen.counters))
  elseif word == "wrong-backlog" and seen.sums then
    local tier = string.sub(detail, 1, 1)
    redis.call("HSET", prefix .. ":backlog", tier, digits(seen.sums[tier]))
  else
    return false
  end
  return true
end
