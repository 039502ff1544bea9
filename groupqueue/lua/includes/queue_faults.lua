-- queue_faults: what is wrong with what a shard has one of: its rate, counters, last token, and
-- what flag_faults finds. Returns the faults and what was seen.
--@include digits
--@include flag_faults
--@include count_messages
--@include bad_counters
--@include fields_of
--@include is_token
--@include is_whole_number
--@include parsed_rate
local BACKLOG_TIERS = { "0", "1", "2", "3", "4" }

-- What `backlog` says of tiers, and of what is none.
local function backlog_faults(shard, sums)
  local found, backlog = {}, fields_of(shard.prefix .. ":backlog")
  for _, tier in ipairs(BACKLOG_TIERS) do
    local noted = backlog[tier] or "0"
    backlog[tier] = nil
    if not is_whole_number(noted) or (sums and tonumber(noted) ~= sums[tier]) then
      table.insert(found, tier .. ", " .. string.sub(noted, 1, 50) .. ", " .. (sums and digits(sums[tier]) or "?"))
    end
  end
  for other, noted in pairs(backlog) do
    table.insert(found, string.sub(other, 1, 50) .. ", " .. string.sub(noted, 1, 50) .. ", 0")
  end
  return found
end

local function queue_faults(shard)
  local prefix = shard.prefix
  local faults, seen = flag_faults(shard)
  seen.sums, seen.counters = count_messages(shard), bad_counters(prefix .. ":stats")
  local function fault(word, detail) table.insert(faults, { word, detail }) end
  if shard.size.fence and not is_token(shard, shard.size.fence) then
    fault("bad-fence", string.sub(shard.size.fence, 1, 50))
  end
  local rate = redis.call("HGET", prefix .. ":rates", "")
  if rate and rate ~= "none" and not parsed_rate(rate) then fault("bad-rate", string.sub(rate, 1, 50)) end
  for _, counter in ipairs(seen.counters) do fault("bad-counter", table.concat(counter, " ")) end
  for _, detail in ipairs(backlog_faults(shard, seen.sums)) do fault("wrong-backlog", detail) end
  if not seen.sums then fault("uncounted", "") end
  return faults, seen
end
