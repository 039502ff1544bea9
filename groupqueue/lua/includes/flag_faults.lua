-- flag_faults: what is wrong with what is noted as special about a queue, see set_flag, and with
-- why it is stopped. Returns the faults and what was seen.
--@include has_flag
--@include is_hold
local FLAGS = { "doomed", "rates", "stopped", "wide" }

-- Whether the text is made of flags alone, each once.
local function is_made_of_flags(text)
  local words, is_seen = {}, {}
  for word in string.gmatch(text, "%S+") do
    for _, known in ipairs(FLAGS) do
      if word == known and not is_seen[word] then words[#words + 1] = word end
    end
    is_seen[word] = true
  end
  return #words > 0 and table.concat(words, " ") == text
end

local function flag_faults(shard)
  local prefix, faults = shard.prefix, {}
  local function size(name) return redis.call("HLEN", prefix .. ":" .. name) end
  local stop = redis.call("HGET", prefix .. ":meta", "stopped")
  local wanted = { doomed = size("doomed") > 0, rates = size("rates") > 0, wide = size("wide") > 0,
    stopped = stop and true or false }
  if redis.call("HEXISTS", prefix .. ":paused", "") == 1 and not is_made_of_flags(shard.flags) then
    table.insert(faults, { "wrong-flag", "'" .. string.sub(shard.flags, 1, 50) .. "'" })
  end
  for _, word in ipairs(FLAGS) do
    if wanted[word] ~= has_flag(shard, word) then table.insert(faults, { "wrong-flag", word }) end
  end
  if stop and not is_hold(stop, true) then table.insert(faults, { "bad-pause", string.sub(stop, 1, 50) }) end
  return faults, { flags = FLAGS, stop = stop }
end
