-- set_flag: note whether something special is in use in this queue, in the field of `paused`
-- that no group can have, the empty one. So whoever uses nothing of it pays nothing:
--   stopped  all of the queue is paused
--   rates    groups or the queue have a rate of their own
--   doomed   groups are being set aside whole
--   wide     groups have several messages in flight at once
local function set_flag(shard, word, is_on)
  local words = {}
  for other in string.gmatch(shard.flags, "%a+") do
    -- Not `~=`: has_flag finds it in any text.
    if not string.find(other, word, 1, true) then words[#words + 1] = other end
  end
  if is_on then words[#words + 1] = word end
  shard.flags = table.concat(words, " ")
  if #words > 0 then
    redis.call("HSET", shard.prefix .. ":paused", "", shard.flags)
    shard.size.paused = math.max(shard.size.paused, 1)
  else
    redis.call("HDEL", shard.prefix .. ":paused", "")
  end
end
