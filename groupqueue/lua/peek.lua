-- peek: read a group's messages from the head on, without touching them.
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
local shard = open_shard(KEYS[1], {})
local list, from = shard.prefix .. ":q:" .. ARGV[1], tonumber(ARGV[2])
local depth = read("LLEN", list)
return { depth, redis.call("LRANGE", list, digits(from), digits(from + tonumber(ARGV[3]) - 1)) }
