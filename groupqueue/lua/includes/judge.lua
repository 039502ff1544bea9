-- judge: what is wrong with a group, a scheduled message or the queue itself: the faults
-- {{word, detail}, …} and what was seen, for mending them.
--@include see_group
--@include group_faults
--@include message_faults
--@include queue_faults
local function judge(shard, kind, name)
  if kind == "message" then return message_faults(shard, name) end
  if kind == "queue" then return queue_faults(shard) end
  local seen = see_group(shard, name)
  return group_faults(shard, seen), seen
end
