-- hold_due: when a group is due, given when it would be: a head that was published with
-- hold keeps its group waiting until its own moment.
local function hold_due(shard, group, due)
  local prefix = shard.prefix
  if shard.size.held == 0 then return due end
  local head = redis.call("LINDEX", prefix .. ":q:" .. group, 0)
  local id = head and string.sub(head, 1, 32)
  if not id or redis.call("HEXISTS", prefix .. ":scheduled:held", id) == 0 then return due end
  local moment = redis.call("ZSCORE", prefix .. ":scheduled", id)
  return moment and tonumber(moment) > tonumber(due) and moment or due
end
