-- width_of: how many messages of a group may be in flight at once; nil if it is not wide.
--@include has_flag
local function width_of(shard, group)
  local width = has_flag(shard, "wide") and redis.call("HGET", shard.prefix .. ":wide", group)
  return width and tonumber(width) or nil
end
