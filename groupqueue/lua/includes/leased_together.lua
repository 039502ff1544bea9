-- leased_together: how many messages a leased group's lease holds; see lease_more. The note
-- names the lease's token: after a crash another lease may not know of it.
--@include read_if_fit
local function leased_together(shard, group)
  local note = read_if_fit("GET", shard.prefix .. ":batch:" .. group) or ""
  local together, token = string.match(note, "^([1-9]%d*) (%d+)$")
  if not together or read_if_fit("GET", shard.prefix .. ":lock:" .. group) ~= token then return 1 end
  return tonumber(together)
end
