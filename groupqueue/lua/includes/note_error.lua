-- note_error: keep the last error of a group's head, for people.
local function note_error(shard, group, text)
  redis.call("HSET", shard.prefix .. ":errors", group, text)
  shard.size.errors = math.max(shard.size.errors, 1)
end
