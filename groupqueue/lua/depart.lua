-- depart: take a worker out of the registry.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] worker  string
-- Reply {"ok"}
-- Keeps: a worker that has left leaves no key behind.
--@include read
read("ZCARD", KEYS[1] .. ":workers")
redis.call("ZREM", KEYS[1] .. ":workers", ARGV[1])
redis.call("DEL", KEYS[1] .. ":worker:" .. ARGV[1])
return { "ok" }
