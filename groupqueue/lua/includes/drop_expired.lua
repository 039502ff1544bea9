-- drop_expired: drop the expired messages at the head of a group that was just locked, a
-- hundred at most and no more than `shard.may_drop` but one, and let the group go again.
-- What is dropped is noted in `shard.expired` as group, id, ….
--@include digits
--@include add_to
--@include score
--@include tally
--@include is_expired
--@include wide_of
--@include forget_heads
--@include end_leases
local DROPPED_AT_ONCE = 100

local function drop_expired(shard, group, tier)
  local list, dropped = shard.prefix .. ":q:" .. group, 0
  local most = math.max(1, math.min(DROPPED_AT_ONCE, shard.may_drop))
  shard.expired = shard.expired or {}
  while dropped < most do
    local element = redis.call("LINDEX", list, 0)
    if not element or not is_expired(shard, element) then break end
    redis.call("LPOP", list)
    table.insert(shard.expired, wide_of(group) or group)
    table.insert(shard.expired, string.sub(element, 1, 32))
    dropped = dropped + 1
  end
  shard.may_drop = shard.may_drop - dropped
  forget_heads(shard, { group })
  end_leases(shard, { { group, tier, score(shard.now), redis.call("LLEN", list) } })
  add_to(shard.prefix .. ":backlog", tier, digits(-dropped))
  tally(shard, "expired", dropped)
end
