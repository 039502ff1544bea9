-- place_groups: write where groups stand after a change: those with messages into
-- their tier's ready set at their due moment, drained ones out of every record.
-- Takes {{group, tier, due (text), left}, …}; a paused group's due moment is +inf.
--@lazy hold_due
--@include has_flag
--@lazy end_width
--@lazy leave_place
local function place_groups(shard, places)
  local prefix = shard.prefix
  local ready, drained, forgotten, held = {}, {}, {}, {}
  for _, place in ipairs(places) do
    local group, tier, due = place[1], place[2], place[3]
    if place[4] == 0 then
      drained[tier] = drained[tier] or {}
      table.insert(drained[tier], group)
      if not has_flag(shard, "wide") or not end_width(shard, group) then table.insert(forgotten, group) end
    else
      if shard.size.paused > 0 and redis.call("HEXISTS", prefix .. ":paused", group) == 1 then
        due = "+inf"
        held[group] = true
      elseif shard.size.held > 0 then
        due = hold_due(shard, group, due)
      end
      local members = ready[tier] or {}
      ready[tier] = members
      members[#members + 1], members[#members + 2] = due, group
    end
  end
  for tier, members in pairs(ready) do
    redis.call("ZADD", prefix .. ":ready:" .. tier, unpack(members))
  end
  for tier, groups in pairs(drained) do
    redis.call("ZREM", prefix .. ":ready:" .. tier, unpack(groups))
  end
  if #forgotten > 0 then redis.call("HDEL", prefix .. ":prio", unpack(forgotten)) end
  if has_flag(shard, "wide") then
    for _, place in ipairs(places) do leave_place(shard, place[1], place[4], held[place[1]]) end
  end
end
