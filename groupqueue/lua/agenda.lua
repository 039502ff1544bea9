-- agenda: read the scheduled messages, soonest first.
-- FLAGS no-writes
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] from    integer  how many to pass over
-- ARGV[2] limit   integer  1..500
-- Reply {scheduled in all, {{id, due ms, data}, …}}
--   data  "M", tier, 4 digits of the width or zeros, 4 of the group's length, group, element;
--   or "H", group
-- Keeps: nothing is written.
--@include open_shard
--@include digits
local shard = open_shard(KEYS[1], { "scheduled", "scheduled:data", "scheduled:held" })
local prefix, from, rows = shard.prefix, tonumber(ARGV[1]), {}
local found = redis.call("ZRANGE", prefix .. ":scheduled", digits(from),
  digits(from + tonumber(ARGV[2]) - 1), "WITHSCORES")
for index = 1, #found, 2 do
  local id = found[index]
  local group = shard.size.held > 0 and redis.call("HGET", prefix .. ":scheduled:held", id)
  table.insert(rows, { id, found[index + 1], group and ("H" .. group)
    or redis.call("HGET", prefix .. ":scheduled:data", id) or "" })
end
return { shard.size.scheduled, rows }
