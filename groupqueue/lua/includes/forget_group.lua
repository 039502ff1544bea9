-- forget_group: drop every record of a group whose messages are gone, leased or not.
--@include forget_heads
--@include end_halt
--@include leave_place
--@include end_width
--@include lessen_doom
local function forget_group(shard, group, tier)
  redis.call("DEL", shard.prefix .. ":lock:" .. group, shard.prefix .. ":batch:" .. group)
  redis.call("ZREM", shard.prefix .. ":ready:" .. tier, group)
  redis.call("HDEL", shard.prefix .. ":prio", group)
  redis.call("HDEL", shard.prefix .. ":holders", group)
  forget_heads(shard, { group })
  end_halt(shard, group)
  end_width(shard, group)
  leave_place(shard, group, 0) -- the queue may not know of it, after editing by hand
  lessen_doom(shard, group)
end
