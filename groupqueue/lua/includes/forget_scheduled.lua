-- forget_scheduled: drop what was noted of messages that were scheduled and are no more.
local function forget_scheduled(shard, ids)
  if #ids == 0 then return end
  redis.call("ZREM", shard.prefix .. ":scheduled", unpack(ids))
  redis.call("HDEL", shard.prefix .. ":scheduled:data", unpack(ids))
  -- Who lets messages join has not looked at this key's type, and is not to stop half-way.
  redis.pcall("HDEL", shard.prefix .. ":scheduled:dedup", unpack(ids))
  if shard.size.held > 0 then redis.call("HDEL", shard.prefix .. ":scheduled:held", unpack(ids)) end
end
