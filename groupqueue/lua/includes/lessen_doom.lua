-- lessen_doom: note that so many messages have left a doomed group, be they set aside or taken
-- away; with the last of them, or when no number is given, the group is as any other again.
-- `place` is where a single one stood, 1 for the head: what came after the doom is not doomed.
--@include digits
--@include has_flag
--@include set_flag
local function lessen_doom(shard, group, gone, place)
  local doomed = shard.prefix .. ":doomed"
  local doom = has_flag(shard, "doomed") and redis.call("HGET", doomed, group)
  if not doom then return end
  local count, behind = string.match(doom, "^(%d+) (.*)$")
  count = tonumber(count) or 0
  if place and place > count then return end
  if gone and gone < count then
    redis.call("HSET", doomed, group, digits(count - gone) .. " " .. behind)
    return
  end
  redis.call("HDEL", doomed, group)
  if redis.call("HLEN", doomed) == 0 then set_flag(shard, "doomed", false) end
end
