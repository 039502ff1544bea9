-- bury: set messages of a doomed group aside, those that waited behind a head whose failure
-- was to take them along: a hundred at most, and no more than `shard.may_drop` but one.
-- What is set aside is noted in `shard.buried` as group, id, ….
-- Returns whether the group was doomed and has been seen to.
-- Keeps: what was published since then stays.
--@include digits
--@include add_to
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
  local is_fit, why = read_if_fit("XLEN", prefix .. ":dead"), "WRONGKEY " .. prefix .. ":dead is no stream"
  local most, done = math.max(1, math.min(BURIED_AT_ONCE, shard.may_drop, tonumber(count), left)), 0
  shard.buried = shard.buried or {}
  while is_fit and done < most do
    local id = string.sub(redis.call("LINDEX", list, 0), 1, 32)
    is_fit, why = dead_letter(shard, group, tier, "group", "it waited behind message " .. behind)
    if is_fit then
      done = done + 1
      table.insert(shard.buried, group)
      table.insert(shard.buried, id)
      forget_heads(shard, { group })
    end
  end
  if done == 0 then
    redis.call("HSET", prefix .. ":errors", group, why)
    redis.call("ZADD", prefix .. ":ready:" .. tier, "XX", digits(shard.now_ms + DEAD_UNFIT_PAUSE_MS), group)
    return true
  end
  lessen_doom(shard, group, done < left and done or nil) -- what is to come is not doomed
  shard.may_drop = shard.may_drop - done
  place_groups(shard, { { group, tier, score(shard.now), left - done } })
  add_to(prefix .. ":backlog", tier, digits(-done))
  tally(shard, "dead", done)
  return true
end
