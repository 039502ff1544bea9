-- forget_heads: drop the counters of heads that have left their groups.
local function forget_heads(shard, groups)
  if #groups == 0 then return end
  redis.call("HDEL", shard.prefix .. ":attempts", unpack(groups))
  if shard.size.failures > 0 then redis.call("HDEL", shard.prefix .. ":failures", unpack(groups)) end
  if shard.size.errors > 0 then redis.call("HDEL", shard.prefix .. ":errors", unpack(groups)) end
end
