-- judge: what is wrong with a group, a member of a wide group's places, a scheduled message, a worker
-- or the queue itself: the faults {{word, detail, name if it is not the one given}, …} and what was
-- seen, for mending them.
--@include see_group
--@include group_faults
--@include place_faults
--@include message_faults
--@include worker_faults
--@include flag_faults
--@include queue_faults
local function judge(shard, kind, name)
  local wide = string.match(kind, "^places:(.*)$")
  if wide then return place_faults(shard, wide, name) end
  if kind == "message" then return message_faults(shard, name) end
  if kind == "worker" then return worker_faults(shard, name) end
  if kind == "flags" then return flag_faults(shard) end
  if kind == "queue" then return queue_faults(shard) end
  local seen = see_group(shard, name)
  return group_faults(shard, seen), seen
end
