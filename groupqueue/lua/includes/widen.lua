-- widen: note how many messages of a group may be in flight at once.
--@include set_flag
local function widen(shard, group, width)
  redis.call("HSET", shard.prefix .. ":wide", group, width)
  set_flag(shard, "wide", true)
end
