-- drop: throw dead letters away.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] count   integer  letters, 1..500
-- then per letter: entry
-- Reply {letters thrown away}
-- Keeps: what is gone already is passed over.
--@include open_shard
--@include tally
local shard = open_shard(KEYS[1], { "dead" })
local dropped = redis.call("XDEL", shard.prefix .. ":dead", unpack(ARGV, 2, 1 + tonumber(ARGV[1])))
tally(shard, "dropped", dropped)
return { dropped }
