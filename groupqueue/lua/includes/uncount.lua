-- uncount: take back the last delivery of a group's head: the next gets its number.
local function uncount(shard, group)
  if redis.call("HINCRBY", shard.prefix .. ":attempts", group, -1) <= 0 then
    redis.call("HDEL", shard.prefix .. ":attempts", group)
  end
end
