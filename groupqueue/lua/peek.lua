-- peek: read a group's messages from the head on, without touching them; of a wide group those
-- that have been started come first.
-- FLAGS no-writes
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] group   string
-- ARGV[2] from    integer  0 is the head
-- ARGV[3] limit   integer  1..500
-- Reply {depth, {element, …}}
-- Keeps: nothing is written.
--@include open_shard
--@include digits
--@include read
--@include read_if_fit
--@include width_of
local shard = open_shard(KEYS[1], { "paused" })
local prefix, group, from = shard.prefix, ARGV[1], tonumber(ARGV[2])
local list, places, upto = prefix .. ":q:" .. group, prefix .. ":places:" .. group, from + tonumber(ARGV[3]) - 1
local depth, started, elements = read("LLEN", list), 0, {}
if width_of(shard, group) then started = read_if_fit("ZCARD", places) or 0 end
if from < started then
  for _, name in ipairs(redis.call("ZRANGE", places, digits(from), digits(upto))) do
    elements[#elements + 1] = read("LINDEX", prefix .. ":q:" .. name, 0) or nil
  end
end
if upto >= started then
  local waiting = redis.call("LRANGE", list, digits(math.max(0, from - started)), digits(upto - started))
  for _, element in ipairs(waiting) do elements[#elements + 1] = element end
end
return { depth + started, elements }
