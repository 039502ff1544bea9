-- is_in_window: whether a message is among the first of its group: true, false, or nil when the
-- group has more than were read, so that nobody knows.
--@include window_of
local function is_in_window(shard, group, id)
  local heads, is_whole = window_of(shard, group)
  for _, head in ipairs(heads) do
    if string.sub(head, 1, 32) == id then return true end
  end
  if is_whole then return false end
  return nil
end
