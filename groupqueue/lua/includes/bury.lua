-- bury: set messages of a doomed group aside, those that waited behind a head whose failure
-- was to take them along: a hundred at most, and no more than `shard.may_drop` but one.
-- What is set aside is noted in `shard.buried` as group, id, ….
-- Returns whether the group was doomed and has been seen to.
-- Keeps: what was published since then stays.
--@include digits
--@include score
--@include tally
--@include has_flag
--@include read_if_fit
--@include forget_heads
--@include dead_letter
--@include lessen_doom
--@include place_groups
local BURIED_AT_ONCE, DEAD_UNFIT_PAUSE_MS = 100, 1000

local function bury(shard, group, tier)
  local prefix, list = shard.prefix, shard.prefix .. ":q:" .. group
  local doom = has_flag(shard, "doomed") and redis.call("HGET", prefix .. ":doomed", group)
  local left = doom and read_if_fit("LLEN", list)
  if not left then return false end
  local count, behind = string.match(doom, "^([1-9]%d*) (.*)$")
  if not count or left == 0 then -- only editing by hand can leave it so
    lessen_doom(shard, group)
    return false
  end
  if not read_if_fit("XLEN", prefix .. ":dead") then
    redis.call("HSET", prefix .. ":errors", group, "WRONGKEY " .. prefix .. ":dead is no stream")
    redis.call("ZADD", prefix .. ":ready:" .. tier, "XX", digits(shard.now_ms + DEAD_UNFIT_PAUSE_MS), group)
    return true
  end
  local most = math.max(1, math.min(BURIED_AT_ONCE, shard.may_drop, tonumber(count), left))
  shard.buried = shard.buried or {}
  for _ = 1, most do
    table.insert(shard.buried, group)
    table.insert(shard.buried, string.sub(redis.call("LINDEX", list, 0), 1, 32))
    dead_letter(shard, group, tier, "group", "it waited behind message " .. behind)
    forget_heads(shard, { group })
  end
  lessen_doom(shard, group, most)
  shard.may_drop = shard.may_drop - most
  place_groups(shard, { { group, tier, score(shard.now), left - most } })
  redis.call("HINCRBY", prefix .. ":backlog", tier, digits(-most))
  tally(shard, "dead", most)
  return true
end
