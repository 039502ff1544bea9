-- may_go: tell how many messages of a group may be leased now, where something special is in
-- use; a group that may not go is put off, or what it is doomed to is done. Returns also the
-- rate to be used, if any, and the width of a wide group.
--@include score
--@include has_flag
--@include rate_of
--@include allowance
--@include bury
--@include wide_of
--@include width_of
--@include has_place
local function may_go(shard, request, group, tier)
  if has_flag(shard, "doomed") and bury(shard, group, tier) then return 0 end
  local wide = wide_of(group)
  local rate, most = rate_of(shard, wide or group, request.group_rate), request.batch
  if rate then
    local free = allowance(shard, rate)
    if free == 0 then
      redis.call("ZADD", shard.prefix .. ":ready:" .. tier, "XX", score(rate.free_us / 1000), group)
      return 0
    end
    most = math.min(most, free)
  end
  if wide and not has_place(shard, group, tier, wide) then return 0 end
  return most, rate, not wide and width_of(shard, group)
end
