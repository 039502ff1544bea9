-- leave_place: a message of a wide group is not in flight any more; `left` is 0 when it is
-- gone for good.
--@include read_if_fit
--@include wide_of
--@include free_place
local function leave_place(shard, group, left, is_halted)
  local wide = wide_of(group)
  if not wide then return end
  local places = shard.prefix .. ":places:" .. wide
  if not read_if_fit("ZCARD", places) then return end
  if left == 0 then
    redis.call("ZREM", places, group)
  else
    redis.call("ZADD", places, is_halted and "3" or "0", group)
  end
  free_place(shard, wide)
end
