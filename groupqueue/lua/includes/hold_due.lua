-- hold_due: when a group is due, given when it would be: a head that was published with
-- hold keeps its group waiting until its own moment, unless it is to be set aside.
--@include has_flag
--@include read_if_fit
local function hold_due(shard, group, due)
  local prefix = shard.prefix
  if shard.size.held == 0 then return due end
  local head = read_if_fit("LINDEX", prefix .. ":q:" .. group, 0)
  local id = head and string.sub(head, 1, 32)
  if not id or redis.call("HEXISTS", prefix .. ":scheduled:held", id) == 0 then return due end
  if has_flag(shard, "doomed") and redis.call("HEXISTS", prefix .. ":doomed", group) == 1 then return due end
  local moment = redis.call("ZSCORE", prefix .. ":scheduled", id)
  return moment and tonumber(moment) > tonumber(due) and moment or due
end
