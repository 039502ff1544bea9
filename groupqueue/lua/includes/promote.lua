-- promote: let scheduled messages that are due join their groups, in due order, at most
-- a hundred per call; and tell when the next is due (ms from now, -1 for none).
-- Keeps: the cost does not grow with the number of scheduled messages; no error is left to
-- be found once the shard is open.
--@include digits
--@include plan_append
--@include append
--@include read_if_fit
--@include forget_scheduled
local MOST_PROMOTED = 100

-- What was noted of a scheduled message: its group, tier and element; nil when it is held,
-- and lies in its group already, or when nothing is left of it. A message that cannot join
-- has no tier: its group's list is none, or the widths are, or its data is no more what it was.
local function understood(shard, id, noted)
  if not noted then return nil end
  local tier, width, length = string.match(noted, "^M([0-4])(%d%d%d%d)(%d%d%d%d)")
  local group = string.sub(noted, 11, 10 + (tonumber(length) or 0))
  if group == "" or string.sub(noted, 11 + #group, 42 + #group) ~= id then tier = nil end
  local kind = redis.call("TYPE", shard.prefix .. ":q:" .. group).ok
  if kind ~= "list" and kind ~= "none" then tier = nil end
  if width == "0000" then width = nil end
  if width and not read_if_fit("HLEN", shard.prefix .. ":wide") then tier = nil end
  return group, tier, string.sub(noted, 11 + #group), width
end

local function promote(shard)
  local scheduled, data = shard.prefix .. ":scheduled", shard.prefix .. ":scheduled:data"
  local ids = redis.call("ZRANGE", scheduled, "-inf", digits(shard.now_ms), "BYSCORE",
    "LIMIT", 0, MOST_PROMOTED)
  if #ids > 0 then
    local groups, by_group, done = {}, {}, {}
    for index, noted in ipairs(redis.call("HMGET", data, unpack(ids))) do
      local group, tier, element, width = understood(shard, ids[index], noted)
      if group and not tier then
        -- It waits for somebody to put this right, and nobody spins on it.
        redis.call("ZADD", scheduled, digits(shard.now_ms + 1000), ids[index])
      else
        done[#done + 1] = ids[index]
      end
      if tier then
        local entry = by_group[group]
        if not entry then
          entry = { first_tier = tier }
          by_group[group] = entry
          groups[#groups + 1] = group
        end
        if width then entry.width = digits(tonumber(width)) end
        entry[#entry + 1] = element
      end
    end
    append(shard, plan_append(shard, groups, by_group, "fair"))
    forget_scheduled(shard, done)
    for _, group in ipairs(groups) do
      -- Tiers that were empty when the shard was opened may not be so any more.
      shard.size["ready:" .. (redis.call("HGET", shard.prefix .. ":prio", group) or "0")] = 1
    end
  end
  local nearest = redis.call("ZRANGE", scheduled, 0, 0, "WITHSCORES")[2]
  return nearest and math.max(0, tonumber(nearest) - shard.now_ms) or -1
end
