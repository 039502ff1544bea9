-- queue_faults: what is wrong with what a shard has one of: its flags, counters, last token.
-- Returns the faults and what was seen.
--@include digits
--@include has_flag
--@include count_messages
local BACKLOG_TIERS = { "0", "1", "2", "3", "4" }

local function is_whole_number(text)
  return string.find(text, "^-?%d+$") ~= nil and #text < 18
end

-- The flags that should be set or not and are the other way, see set_flag.
local function wrong_flags(shard)
  local function size(name) return redis.call("HLEN", shard.prefix .. ":" .. name) end
  local wanted = { doomed = size("doomed") > 0, rates = size("rates") > 0, wide = size("wide") > 0,
    stopped = redis.call("HEXISTS", shard.prefix .. ":meta", "stopped") == 1 }
  local wrong = {}
  for _, word in ipairs({ "doomed", "rates", "stopped", "wide" }) do
    if wanted[word] ~= has_flag(shard, word) then wrong[#wrong + 1] = word end
  end
  return wrong
end

local function fields_of(key)
  local found, fields = redis.call("HGETALL", key), {}
  for index = 1, #found, 2 do fields[found[index]] = found[index + 1] end
  return fields
end

local function queue_faults(shard)
  local faults, prefix = {}, shard.prefix
  local seen = { flags = wrong_flags(shard), sums = count_messages(shard), counters = {} }
  local function fault(word, detail) table.insert(faults, { word, detail }) end
  for _, word in ipairs(seen.flags) do fault("wrong-flag", word) end
  if shard.size.fence and string.find(shard.size.fence, "^%d+$") == nil then
    seen.is_fence_bad = true
    fault("bad-fence", shard.size.fence)
  end
  for counter, value in pairs(fields_of(prefix .. ":stats")) do
    if not is_whole_number(value) or string.sub(value, 1, 1) == "-" then
      table.insert(seen.counters, counter)
      fault("bad-counter", counter .. " " .. value)
    end
  end
  local backlog = fields_of(prefix .. ":backlog")
  for _, tier in ipairs(BACKLOG_TIERS) do
    local noted = backlog[tier] or "0"
    local is_bad = not is_whole_number(noted)
    if is_bad or (seen.sums and tonumber(noted) ~= seen.sums[tier]) then
      fault("wrong-backlog", tier .. ", " .. noted .. ", " .. (seen.sums and digits(seen.sums[tier]) or "?"))
    end
  end
  if not seen.sums then fault("uncounted", "") end
  return faults, seen
end
