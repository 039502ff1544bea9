-- uncount: take back the last delivery of a group's head: the next gets its number.
local function uncount(shard, group)
  local left = redis.pcall("HINCRBY", shard.prefix .. ":attempts", group, -1)
  if type(left) == "table" or left <= 0 then -- an error: somebody wrote what is no number
    redis.call("HDEL", shard.prefix .. ":attempts", group)
  end
end
