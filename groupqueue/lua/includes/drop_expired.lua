-- drop_expired: drop the expired messages at the head of a group that was just locked, a
-- hundred at most, and let the group go again. What is dropped is noted in
-- `shard.expired` as group, id, ….
--@include digits
--@include score
--@include tally
--@include forget_heads
--@include end_leases
local MOST_DROPPED = 100

local function drop_expired(shard, group, tier)
  local list, dropped = shard.prefix .. ":q:" .. group, 0
  shard.expired = shard.expired or {}
  while dropped < MOST_DROPPED do
    local element = redis.call("LINDEX", list, 0)
    local expires = element and tonumber(string.sub(element, 46, 58)) or 0
    if expires == 0 or expires > shard.now_ms then break end
    redis.call("LPOP", list)
    table.insert(shard.expired, group)
    table.insert(shard.expired, string.sub(element, 1, 32))
    dropped = dropped + 1
  end
  forget_heads(shard, { group })
  end_leases(shard, { { group, tier, score(shard.now), redis.call("LLEN", list) } })
  redis.call("HINCRBY", shard.prefix .. ":backlog", tier, digits(-dropped))
  tally(shard, "expired", dropped)
end
