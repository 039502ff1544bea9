-- leased_together: how many messages a leased group's lease holds; see lease_more.
--@include read_if_fit
local function leased_together(shard, group)
  return math.max(1, tonumber(read_if_fit("GET", shard.prefix .. ":batch:" .. group) or "") or 1)
end
