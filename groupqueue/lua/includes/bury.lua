-- bury: set messages of a doomed group aside, those that waited behind a head whose failure
-- was to take them along: a hundred at most, and no more than `shard.may_drop` but one.
-- What is set aside is noted in `shard.buried` as group, id, ….
-- Keeps: what was published since then stays.
--@include digits
--@include score
--@include tally
--@include read_if_fit
--@include forget_heads
--@include dead_letter
--@include place_groups
--@include set_flag
local BURIED_AT_ONCE, DEAD_UNFIT_PAUSE_MS = 100, 1000

local function bury(shard, group, tier, doom)
  local prefix, list = shard.prefix, shard.prefix .. ":q:" .. group
  local count, behind = string.match(doom, "^(%d+) (.*)$")
  if not read_if_fit("XLEN", prefix .. ":dead") then
    redis.call("ZADD", prefix .. ":ready:" .. tier, "XX", digits(shard.now_ms + DEAD_UNFIT_PAUSE_MS), group)
    return
  end
  local left = redis.call("LLEN", list)
  local most = math.max(1, math.min(BURIED_AT_ONCE, shard.may_drop, tonumber(count) or 0, left))
  shard.buried = shard.buried or {}
  for _ = 1, most do
    table.insert(shard.buried, group)
    table.insert(shard.buried, string.sub(redis.call("LINDEX", list, 0), 1, 32))
    dead_letter(shard, group, tier, "group", "it waited behind message " .. (behind or "?"))
    forget_heads(shard, { group })
  end
  count, left = (tonumber(count) or 0) - most, left - most
  if count > 0 and left > 0 then
    redis.call("HSET", prefix .. ":doomed", group, digits(count) .. " " .. behind)
  else
    redis.call("HDEL", prefix .. ":doomed", group)
    if redis.call("HLEN", prefix .. ":doomed") == 0 then set_flag(shard, "doomed", false) end
  end
  shard.may_drop = shard.may_drop - most
  place_groups(shard, { { group, tier, score(shard.now), left } })
  redis.call("HINCRBY", prefix .. ":backlog", tier, digits(-most))
  tally(shard, "dead", most)
end
