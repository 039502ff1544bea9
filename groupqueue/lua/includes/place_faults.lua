-- place_faults: what is wrong with a member of a wide group's `places`, and what was seen of it.
-- One that has messages is judged as the group that it is.
--@include wide_of
--@include see_group
--@include group_faults
local function place_faults(shard, wide, member)
  local is_there = redis.call("ZSCORE", shard.prefix .. ":places:" .. wide, member)
  if not is_there then return {} end -- gone by now
  if wide_of(member) ~= wide then return { { "stray-place", member, wide } } end
  local seen = see_group(shard, member)
  return seen and seen.depth == 0 and group_faults(shard, seen) or {}, seen
end
