-- survey: page through what a shard has: the faults of its keys, and whom to judge, see audit.
-- FLAGS no-writes
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] source  own (the keys that a shard has one of) | keys (all) | the name of a hash or zset
--                 with a field per group, message or worker | dead
-- ARGV[2] cursor  string   "0" at first, then what the last reply said, until "0"
-- ARGV[3] limit   integer  1..500; about so many, or all that a small hash has
-- Reply {cursor, {{key, word, detail}, …}, {name, …}, {messages, backlog}, {wide group, …}}
--   name      a group, from a hash or zset only if it has no messages; a message's or worker's id; a
--             letter's entry; any member of places
--   messages  in the page's groups of a ready set, and what `backlog` says of that tier
--   wide      whose places are among the keys
-- Keeps: nothing is written; what is there all the while is read at least once; `own` and `keys`
-- go through keys of any type.
--@include open_shard
--@include digits
--@include kind_of
--@include bad_counters
--@include bad_value
--@include read
--@include read_if_fit
-- What has a field for others than groups, or names groups that are judged even if they have messages.
local NAMES_ALL = { scheduled = true, workers = true, places = true }

local shard = open_shard(KEYS[1], {})
local prefix, source, cursor, limit = shard.prefix, ARGV[1], ARGV[2], ARGV[3]
local faults, names, wide, messages = {}, {}, {}, 0

local function name_group(group)
  if group == "" then return nil end -- see set_flag
  local depth = read_if_fit("LLEN", prefix .. ":q:" .. group)
  messages = messages + (depth or 0)
  if depth == 0 then table.insert(names, group) end
end

local function check_key(name)
  local key = prefix .. ":" .. name
  local actual = redis.call("TYPE", key).ok
  if actual == "none" then return nil end
  local kind, expires, per, which = kind_of(name)
  if not kind then
    table.insert(faults, { name, "unknown-key", actual })
    return nil
  end
  if actual ~= kind then
    table.insert(faults, { name, "wrong-type", actual })
    return nil
  end
  if expires and redis.call("PTTL", key) == -1 then table.insert(faults, { name, "no-expiry", "" }) end
  local value = bad_value(shard, name, per)
  if value then table.insert(faults, { name, "bad-value", value }) end
  if per == "stats" then
    for _, counter in ipairs(bad_counters(key)) do
      table.insert(faults, { name, "bad-counter", table.concat(counter, " ") })
    end
  elseif per == "q" or (per == "lock" and redis.call("EXISTS", prefix .. ":q:" .. which) == 0) then
    table.insert(names, which)
  elseif per == "places" then
    table.insert(wide, which)
  end
end

-- A page of a hash or zset: the cursor of the next one.
local function name_fields()
  local key = prefix .. ":" .. source
  local page = kind_of(source) == "zset" and read("ZSCAN", key, cursor, "COUNT", limit)
    or read("HSCAN", key, cursor, "COUNT", limit)
  for index = 1, #page[2], 2 do
    if NAMES_ALL[string.match(source, "^%a+")] then
      table.insert(names, page[2][index])
    else
      name_group(page[2][index])
    end
  end
  return page[1]
end

local following, backlog = "0", ""
if source == "own" then
  for name in pairs(KEY_TYPES) do check_key(name) end
elseif source == "keys" then
  local pattern = string.gsub(prefix, "[%*%?%[%]\\]", "\\%0") .. ":*"
  local page = redis.call("SCAN", cursor, "MATCH", pattern, "COUNT", limit)
  following = page[1]
  for _, key in ipairs(page[2]) do check_key(string.sub(key, #prefix + 2)) end
elseif source == "dead" then
  local found = read("XRANGE", prefix .. ":dead", cursor == "0" and "-" or cursor, "+", "COUNT", limit)
  for index, letter in ipairs(found) do names[index] = letter[1] end
  if #found == tonumber(limit) then following = "(" .. names[#names] end
else
  following = name_fields()
  local tier = string.match(source, "^ready:(%d)$")
  backlog = tier and redis.call("HGET", prefix .. ":backlog", tier) or ""
end
return { following, faults, names, { digits(messages), backlog }, wide }
