-- letters: read dead letters, newest or oldest first.
-- FLAGS no-writes
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] from    string   entry id to begin with, or - or +
-- ARGV[2] to      string   entry id to end with, or + or -
-- ARGV[3] limit   integer  1..500
-- ARGV[4] order   oldest | newest   which comes first
-- Reply {letters in all, {{entry id, {field, value, …}}, …}}
-- Keeps: nothing is written.
--@include open_shard
local shard = open_shard(KEYS[1], { "dead" })
local dead = shard.prefix .. ":dead"
local found = ARGV[4] == "newest"
  and redis.call("XREVRANGE", dead, ARGV[1], ARGV[2], "COUNT", ARGV[3])
  or redis.call("XRANGE", dead, ARGV[1], ARGV[2], "COUNT", ARGV[3])
return { shard.size.dead, found }
