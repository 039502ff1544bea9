-- redrive: put dead letters back into their groups, to be handled again.
-- FLAGS
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] place   front | tail   before what waits (their original place), or behind it
-- ARGV[2] count   integer  letters, 1..100
-- then per letter: entry
-- Reply {letters put back}; those that are gone already, and entries that are no dead
--   letters, are passed over
-- Keeps: the order given, oldest first, among the letters of a group; behind a running
-- lease; a halted or paused group stays so, a due one does not lose its place in line;
-- fresh attempts; dedup is bypassed; of a group that is being set aside what still waits stays.
--@include open_shard
--@include digits
--@include add_to
--@include read
--@include is_letter
--@include score
--@include tier_of
--@include widen
--@include tally
--@include forget_heads
--@include leased_together
--@include lessen_doom
--@include hint
local shard = open_shard(KEYS[1], { "prio", "attempts", "failures", "errors", "paused", "dead",
  "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local prefix = shard.prefix

-- The letters by group: {name, tier noted, {element, …}, depth, messages leased}, everything
-- read first.
local function read_letter(entry)
  local found, letter = redis.call("XRANGE", prefix .. ":dead", entry, entry)[1], {}
  for index = 1, found and #found[2] or 0, 2 do letter[found[2][index]] = found[2][index + 1] end
  return is_letter(letter) and letter
end

local function gather()
  local groups, entries, seen = {}, {}, {}
  for number = 1, tonumber(ARGV[2]) do
    local entry = ARGV[number + 2]
    local letter = not seen[entry] and read_letter(entry)
    seen[entry] = true
    if letter then
      local group = groups[letter.group]
      if not group then
        group = { name = letter.group, tier = letter.tier, elements = {} }
        group.depth = read("LLEN", prefix .. ":q:" .. letter.group)
        group.is_leased = read("GET", prefix .. ":lock:" .. letter.group) and group.depth > 0
        group.leased = leased_together(shard, letter.group)
        groups[letter.group] = group
        table.insert(groups, group)
      end
      table.insert(group.elements, letter.element)
      group.width = group.width or string.match(letter.width or "", "^%d+$")
      if group.width then read("HLEN", prefix .. ":wide") end
      table.insert(entries, entry)
    end
  end
  return groups, entries
end

local function put_in_front(group)
  local list = prefix .. ":q:" .. group.name
  local leased = group.is_leased and redis.call("LPOP", list, digits(group.leased)) or {}
  for index = #group.elements, 1, -1 do redis.call("LPUSH", list, group.elements[index]) end
  for index = #leased, 1, -1 do redis.call("LPUSH", list, leased[index]) end
  -- The counters of the head that is second now.
  if not group.is_leased then forget_heads(shard, { group.name }) end
end

local groups, entries = gather()
for index, group in ipairs(groups) do
  local tier = redis.call("HGET", prefix .. ":prio", group.name)
  local is_new = not tier and group.depth == 0
  if not tier then
    tier = tier_of(shard, group.name, is_new and group.tier)
    redis.call("HSET", prefix .. ":prio", group.name, tier)
  end
  if ARGV[1] == "front" then
    put_in_front(group)
    lessen_doom(shard, group.name) -- what waits behind them need not follow them any more
  else
    redis.call("RPUSH", prefix .. ":q:" .. group.name, unpack(group.elements))
  end
  if not group.is_leased then
    local held = shard.size.paused > 0 and redis.call("HEXISTS", prefix .. ":paused", group.name) == 1
    local due = held and "+inf" or score(shard.now - (#groups - index) / 1000)
    if ARGV[1] == "front" and group.depth > 0 then
      -- The new head need not wait for what the former one waits for.
      redis.call("ZADD", prefix .. ":ready:" .. tier, "XX", "LT", due, group.name)
    else
      redis.call("ZADD", prefix .. ":ready:" .. tier, "NX", due, group.name)
    end
  end
  if group.width and is_new then widen(shard, group.name, group.width) end
  add_to(prefix .. ":backlog", tier, digits(#group.elements))
end
if #entries > 0 then
  redis.call("XDEL", prefix .. ":dead", unpack(entries))
  tally(shard, "redriven", #entries)
  hint(shard)
end
return { #entries }
