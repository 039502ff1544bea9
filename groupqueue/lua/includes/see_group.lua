-- see_group: all that is known of one group, for judging it; nil when its list or its lock is of
-- another type, so that there is nothing to judge.
--@include read_if_fit
--@include wide_of
local READY_TIERS = { "4", "3", "2", "1", "0" }

local function see_group(shard, group)
  local prefix = shard.prefix
  local function field(name) return redis.call("HGET", prefix .. ":" .. name, group) or nil end
  local lock, list = prefix .. ":lock:" .. group, prefix .. ":q:" .. group
  local kind, depth = redis.call("TYPE", lock).ok, read_if_fit("LLEN", list)
  if not depth or (kind ~= "string" and kind ~= "none") then return nil end
  local seen = { group = group, depth = depth, left_ms = redis.call("PTTL", lock), stands = {},
    token = kind == "string" and redis.call("GET", lock) or nil,
    tier = field("prio"), attempts = field("attempts"), failures = field("failures"),
    errors = field("errors"), holder = field("holders"), paused = field("paused"),
    doomed = field("doomed"), rate = field("rates"), is_leased = kind == "string" }
  for _, tier in ipairs(READY_TIERS) do
    local due = redis.call("ZSCORE", prefix .. ":ready:" .. tier, group)
    if due then table.insert(seen.stands, { tier = tier, due = due }) end
  end
  local head = depth > 0 and string.sub(redis.call("LINDEX", list, 0), 1, 32)
  if head and redis.call("HEXISTS", prefix .. ":scheduled:held", head) == 1 then
    seen.held_until = tonumber(redis.call("ZSCORE", prefix .. ":scheduled", head) or "0")
  end
  seen.width, seen.wide = field("wide"), wide_of(group)
  seen.started = read_if_fit("ZCARD", prefix .. ":places:" .. group) or 0
  seen.has_places = seen.wide and read_if_fit("ZCARD", prefix .. ":places:" .. seen.wide) ~= false
  seen.place = seen.has_places and redis.call("ZSCORE", prefix .. ":places:" .. seen.wide, group) or nil
  seen.is_rated = redis.call("EXISTS", prefix .. ":tat:" .. (seen.wide or group)) == 1
  return seen
end
