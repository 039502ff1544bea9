-- agenda: read the scheduled messages, soonest first.
-- FLAGS no-writes
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] from    integer  how many to pass over
-- ARGV[2] limit   integer  1..500
-- Reply {scheduled in all, {{id, due ms, data}, …}}
--   data  "M", tier, 4 digits of the group's length, group, element; or "H", group
-- Keeps: nothing is written.
--@include open_shard
--@include digits
local shard = open_shard(KEYS[1], { "scheduled", "scheduled:data" })
local from, rows = tonumber(ARGV[1]), {}
local found = redis.call("ZRANGE", shard.prefix .. ":scheduled", digits(from),
  digits(from + tonumber(ARGV[2]) - 1), "WITHSCORES")
for index = 1, #found, 2 do
  table.insert(rows, { found[index], found[index + 1],
    redis.call("HGET", shard.prefix .. ":scheduled:data", found[index]) or "" })
end
return { shard.size.scheduled, rows }
