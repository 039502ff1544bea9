-- end_width: a group has nothing waiting any more: tell whether messages of it are left that
-- have been started; if not, it is wide no more.
--@include has_flag
--@include read_if_fit
--@include set_flag
local function end_width(shard, group)
  local prefix = shard.prefix
  if not has_flag(shard, "wide") or redis.call("HEXISTS", prefix .. ":wide", group) == 0 then return false end
  if read_if_fit("ZCARD", prefix .. ":places:" .. group) ~= 0 then return true end
  redis.call("HDEL", prefix .. ":wide", group)
  if redis.call("HLEN", prefix .. ":wide") == 0 then set_flag(shard, "wide", false) end
  return false
end
