-- widen: note how many messages of a group may be in flight at once. The width 1 is that of
-- every group, and is noted only where it changes something. Places that are new are given away.
--@include width_of
--@include set_flag
--@include free_place
--@include read_if_fit
local function widen(shard, group, width)
  local former = width_of(shard, group)
  if not former and width == "1" then return end
  redis.call("HSET", shard.prefix .. ":wide", group, width)
  if not former then return set_flag(shard, "wide", true) end
  if not read_if_fit("ZCARD", shard.prefix .. ":places:" .. group) then return end
  for _ = former + 1, tonumber(width) do
    if not free_place(shard, group) then break end
  end
end
