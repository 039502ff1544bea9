-- message_faults: what is wrong with a scheduled message, and what was seen of it.
--@include is_in_window
--@include is_sound
--@include is_moment
local function sound_data(id, noted)
  local length = string.match(noted, "^M[0-4]%d%d%d%d(%d%d%d%d)")
  local element = length and tonumber(length) > 0 and string.sub(noted, 11 + tonumber(length))
  return element and is_sound(element) and string.sub(element, 1, 32) == id
end

local function message_faults(shard, id)
  local prefix = shard.prefix
  local seen = { id = id, due = redis.call("ZSCORE", prefix .. ":scheduled", id),
    data = redis.call("HGET", prefix .. ":scheduled:data", id),
    group = redis.call("HGET", prefix .. ":scheduled:held", id),
    dedup_key = redis.call("HGET", prefix .. ":scheduled:dedup", id) }
  local faults = {}
  local function fault(word, detail) table.insert(faults, { word, detail or "" }) end
  if seen.due and not is_moment(seen.due) then fault("bad-moment", seen.due) end
  if seen.group then seen.is_there = is_in_window(shard, seen.group, id) end
  if seen.data and seen.group then
    fault("scheduled-twice", seen.group)
  elseif seen.data then
    local is_sound_data = sound_data(id, seen.data)
    if not is_sound_data and seen.due then
      fault("bad-schedule")
    elseif not is_sound_data then
      fault("data-alone")
    elseif not seen.due then
      fault("never-due")
    end
  elseif seen.group then
    if not seen.due then
      fault("held-without-moment", seen.group)
    -- Once it is due it may have been handled before it is noted as such.
    elseif tonumber(seen.due) > shard.now_ms and seen.is_there == false then
      fault("held-but-gone", seen.group)
    end
  elseif seen.due then
    fault("moment-alone")
  elseif seen.dedup_key then
    fault("dedup-alone", seen.dedup_key)
  end
  return faults, seen
end
