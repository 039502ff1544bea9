-- renew: push the deadlines of leases out, of those that still hold.
-- FLAGS allow-oom
-- KEYS[1] prefix         routing key of the shard
-- ARGV[1] visibility_ms  integer  how long each lease lasts from now on
-- ARGV[2] count          integer  leases, 1..400
-- then per lease: group, token
-- Reply {word, …}: "ok" | "stale", one per lease
-- Keeps: lock and score change together; a paused group's score stays +inf.
--@include open_shard
--@include digits
--@include tier_of
--@include note_ms
--@include read_if_fit
local shard = open_shard(KEYS[1], { "prio", "paused",
  "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local prefix, words = shard.prefix, {}
local deadline = digits(shard.now_ms + tonumber(ARGV[1]))
for number = 1, tonumber(ARGV[2]) do
  local group, token = ARGV[number * 2 + 1], ARGV[number * 2 + 2]
  words[number] = read_if_fit("GET", prefix .. ":lock:" .. group) == token and "ok" or "stale"
end
for number = 1, #words do
  local group = ARGV[number * 2 + 1]
  if words[number] == "ok" then
    redis.call("PEXPIRE", prefix .. ":lock:" .. group, ARGV[1])
    redis.call("PEXPIRE", prefix .. ":batch:" .. group, note_ms(tonumber(ARGV[1])), "GT")
    if shard.size.paused == 0 or redis.call("HEXISTS", prefix .. ":paused", group) == 0 then
      redis.call("ZADD", prefix .. ":ready:" .. tier_of(shard, group), deadline, group)
    end
  end
end
return words
