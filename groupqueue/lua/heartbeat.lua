-- heartbeat: enter a worker in the registry, or say that it is still there.
-- FLAGS allow-oom
-- KEYS[1] prefix   routing key of the shard
-- ARGV[1] worker   string
-- ARGV[2] kept_ms  integer  how long without a heartbeat until it is forgotten
-- ARGV[3] schema   integer  the key layout's version that the worker knows
-- ARGV[4] fields   integer  number of pairs
-- then per field: name, value
-- Reply {"ok", schema in force, workers alive}
-- Keeps: no worker outlives its silence; the schema is set by the first worker.
--@include open_shard
--@include digits
--@include read
local shard = open_shard(KEYS[1], { "workers", "meta" })
local prefix, worker = shard.prefix, shard.prefix .. ":worker:" .. ARGV[1]
read("HLEN", worker)
redis.call("HSETNX", prefix .. ":meta", "schema", ARGV[3])
redis.call("ZREMRANGEBYSCORE", prefix .. ":workers", "-inf", digits(shard.now_ms - tonumber(ARGV[2])))
redis.call("ZADD", prefix .. ":workers", digits(shard.now_ms), ARGV[1])
redis.call("HSET", worker, unpack(ARGV, 5, 4 + tonumber(ARGV[4]) * 2))
redis.call("PEXPIRE", worker, ARGV[2])
return { "ok", redis.call("HGET", prefix .. ":meta", "schema"), redis.call("ZCARD", prefix .. ":workers") }
