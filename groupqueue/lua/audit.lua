-- audit: judge groups, messages and the queue itself: what is not as the scripts keep it?
-- FLAGS no-writes
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] kind    group | list (a group's messages) | message (scheduled ones) |
--                 letter (dead ones) | worker | queue | places:<wide group> (its members)
-- ARGV[2] count   integer  names, 1..100
-- then per name: name
-- Reply {names judged, {{name, word, detail}, …}}; ask again for the others
-- Keeps: nothing is written; each is judged at one moment, so that nothing in flight is
-- reported. Of a group's messages a thousand are read, of all 4 MB: then the call ends.
--@include open_shard
--@include judge
--@include allow_reading
--@include window_of
--@include is_in_window
--@include is_sound
--@include is_letter
--@include started_name
--@include digits
local shard = open_shard(KEYS[1], { "prio", "attempts", "failures", "errors", "holders", "paused", "doomed", "wide",
  "rates", "backlog", "stats", "meta", "fence", "dead", "scheduled", "scheduled:data", "scheduled:held",
  "scheduled:dedup", "workers", "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
allow_reading(shard)

local function list_faults(group)
  local faults, places, bad = {}, {}, 0
  for place, head in ipairs((window_of(shard, group))) do
    local id = string.sub(head, 1, 32)
    if not is_sound(head) then
      if bad == 0 then table.insert(faults, { "bad-message", digits(place - 1) }) end
      bad = bad + 1
    elseif places[id] then
      table.insert(faults, { "twice-in-group", id })
    end
    places[id] = place
  end
  return faults
end

local DAY_MS = 86400000 -- clocks are set now and then

local function letter_faults(entry)
  local found, letter = redis.call("XRANGE", shard.prefix .. ":dead", entry, entry)[1], {}
  if not found then return {} end -- redriven or dropped by now
  for index = 1, #found[2], 2 do letter[found[2][index]] = found[2][index + 1] end
  local faults = {}
  if tonumber(string.match(entry, "^%d+")) > shard.now_ms + DAY_MS then table.insert(faults, { "late-letter", "" }) end
  if not is_letter(letter) then
    table.insert(faults, { "bad-letter", "" })
    return faults
  end
  local id = string.sub(letter.element, 1, 32)
  local is_started = redis.call("EXISTS", shard.prefix .. ":q:" .. started_name(letter.group, id)) == 1
  if is_started or is_in_window(shard, letter.group, id) then
    table.insert(faults, { "dead-and-alive", id .. " " .. letter.group })
  end
  return faults
end

local kind, judged, found = ARGV[1], 0, {}
for number = 1, tonumber(ARGV[2]) do
  if shard.may_read <= 0 or shard.may_read_bytes <= 0 then break end
  local name, faults = ARGV[number + 2], nil
  if kind == "list" then
    faults = list_faults(name)
  elseif kind == "letter" then
    faults = letter_faults(name)
  else
    faults = judge(shard, kind, name)
  end
  for _, fault in ipairs(faults) do table.insert(found, { fault[3] or name, fault[1], fault[2] }) end
  judged = judged + 1
end
return { judged, found }
