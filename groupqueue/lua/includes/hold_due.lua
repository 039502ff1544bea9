-- hold_due: when a group is due, given when it would be: a head that was published with
-- hold keeps its group waiting until its own moment.
local function hold_due(shard, group, due)
  local head = redis.call("LINDEX", shard.prefix .. ":q:" .. group, 0)
  local noted = head and redis.call("HGET", shard.prefix .. ":scheduled:data", string.sub(head, 1, 32))
  if not noted or string.sub(noted, 1, 1) ~= "H" then return due end
  local moment = redis.call("ZSCORE", shard.prefix .. ":scheduled", string.sub(head, 1, 32))
  return moment and tonumber(moment) > tonumber(due) and moment or due
end
