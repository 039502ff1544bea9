-- promote: let scheduled messages that are due join their groups, in due order, at most
-- a hundred per call; and tell when the next is due (ms from now, -1 for none).
-- Keeps: the cost does not grow with the number of scheduled messages.
--@include digits
--@include read
--@include plan_append
--@include append
local MOST_PROMOTED = 100

local function promote(shard)
  if shard.size.scheduled == 0 then return -1 end
  local scheduled, data = shard.prefix .. ":scheduled", shard.prefix .. ":scheduled:data"
  local ids = redis.call("ZRANGE", scheduled, "-inf", digits(shard.now_ms), "BYSCORE",
    "LIMIT", 0, MOST_PROMOTED)
  if #ids > 0 then
    local groups, by_group, done = {}, {}, {}
    for index, noted in ipairs(redis.call("HMGET", data, unpack(ids))) do
      local is_message = noted and string.sub(noted, 1, 1) == "M"
      local length = is_message and tonumber(string.sub(noted, 3, 6))
      local group = is_message and string.sub(noted, 7, 6 + length)
      local kind = is_message and redis.call("TYPE", shard.prefix .. ":q:" .. group).ok
      if is_message and kind ~= "list" and kind ~= "none" then
        -- Not ours to write to: the message waits, and nobody spins on it.
        redis.call("ZADD", scheduled, digits(shard.now_ms + 1000), ids[index])
      else
        done[#done + 1] = ids[index]
      end
      if is_message and done[#done] == ids[index] then
        local entry = by_group[group]
        if not entry then
          entry = { first_tier = string.sub(noted, 2, 2) }
          by_group[group] = entry
          groups[#groups + 1] = group
        end
        entry[#entry + 1] = string.sub(noted, 7 + length)
      end
    end
    append(shard, plan_append(shard, groups, by_group, "fair"))
    if #done > 0 then
      redis.call("ZREM", scheduled, unpack(done))
      redis.call("HDEL", data, unpack(done))
    end
    for _, group in ipairs(groups) do
      -- Tiers that were empty when the shard was opened may not be so any more.
      shard.size["ready:" .. (redis.call("HGET", shard.prefix .. ":prio", group) or "0")] = 1
    end
  end
  local nearest = redis.call("ZRANGE", scheduled, 0, 0, "WITHSCORES")[2]
  return nearest and math.max(0, tonumber(nearest) - shard.now_ms) or -1
end
