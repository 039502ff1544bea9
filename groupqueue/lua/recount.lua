-- recount: say that a leased head is not being handled yet, so that its worker's death is no
-- crash of this message; or that it is now.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] group   string
-- ARGV[2] token   integer  the caller's fencing token
-- ARGV[3] id      string   the head's id
-- ARGV[4] change  -1 | 1   of the deliveries
-- Reply {"ok" | "stale" | "moved"}
-- Keeps: the lease as it is.
--@include open_shard
--@include read
--@include add_to
--@include uncount
local shard = open_shard(KEYS[1], { "attempts" })
local prefix, group = shard.prefix, ARGV[1]
if read("GET", prefix .. ":lock:" .. group) ~= ARGV[2] then return { "stale" } end
local head = read("LINDEX", prefix .. ":q:" .. group, 0)
if not head or string.sub(head, 1, 32) ~= ARGV[3] then return { "moved" } end
if ARGV[4] == "1" then
  add_to(prefix .. ":attempts", group, "1")
else
  uncount(shard, group)
end
return { "ok" }
