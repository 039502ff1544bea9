-- mend_queue: put right what a shard has one of, given what queue_faults saw; one fault of it.
-- Returns whether it could. Keeps: a queue that was stopped stays so, until it is started.
--@include digits
--@include has_flag
--@include set_flag
local function mend_flag(shard, seen, word)
  if word == "stopped" and has_flag(shard, word) then
    redis.call("HSET", shard.prefix .. ":meta", "stopped", digits(shard.now_ms) .. " why is not known any more")
  elseif string.sub(word, 1, 1) ~= "'" then
    set_flag(shard, word, not has_flag(shard, word))
  else -- the text as a whole: what scripts read in it is looked at next
    local found = {}
    for _, known in ipairs(seen.flags) do
      if has_flag(shard, known) then table.insert(found, known) end
    end
    shard.flags = ""
    redis.call("HDEL", shard.prefix .. ":paused", "")
    for _, known in ipairs(found) do set_flag(shard, known, true) end
  end
end

local function mend_backlog(shard, seen, tier)
  if seen.sums and seen.sums[tier] then
    redis.call("HSET", shard.prefix .. ":backlog", tier, digits(seen.sums[tier]))
  elseif string.find(tier, "^[0-4]$") then
    return false
  else
    redis.call("HDEL", shard.prefix .. ":backlog", tier)
  end
  return true
end

local function mend_queue(shard, seen, word, detail)
  local prefix = shard.prefix
  if word == "wrong-flag" then
    mend_flag(shard, seen, detail)
  elseif word == "bad-pause" then
    local told = string.gsub(string.sub(seen.stop, 1, 200), "%c", " ")
    redis.call("HSET", prefix .. ":meta", "stopped", digits(shard.now_ms) .. " " .. told)
  elseif word == "bad-rate" then
    redis.call("HDEL", prefix .. ":rates", "")
    set_flag(shard, "rates", redis.call("HLEN", prefix .. ":rates") > 0)
  elseif word == "bad-fence" then
    redis.call("DEL", prefix .. ":fence") -- tokens go on from the clock
  elseif word == "bad-counter" then
    for _, counter in ipairs(seen.counters) do redis.call("HDEL", prefix .. ":stats", counter[1]) end
  elseif word == "wrong-backlog" then
    return mend_backlog(shard, seen, string.match(detail, "^[^,]*"))
  else
    return false
  end
  return true
end
