-- rate: say how often messages of a group, or of the whole queue, may be delivered.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] group   string or ""   "" for all of the queue
-- ARGV[2] rate    "<interval in µs> <burst>" | "none" (any number, whatever the settings say) |
--                 "" (as the settings say)
-- Reply {former rate, or "" when there was none}
-- Keeps: it holds from the next claim on, for waiting, parked and leased groups; what a rate
-- has let through counts until another one is given.
--@include open_shard
--@include score
--@include tier_of
--@include free_of
--@include hold_due
--@include started_of
--@include set_flag
--@include hint
local shard = open_shard(KEYS[1], { "prio", "paused", "rates", "wake", "scheduled",
  "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local prefix, group = shard.prefix, ARGV[1]
local former = redis.call("HGET", prefix .. ":rates", group) or ""
if former == ARGV[2] then return { former } end

if ARGV[2] == "" then
  redis.call("HDEL", prefix .. ":rates", group)
else
  redis.call("HSET", prefix .. ":rates", group, ARGV[2])
end
set_flag(shard, "rates", redis.call("HLEN", prefix .. ":rates") > 0)
-- Under the new rate nothing is used up, and what the former one has put off may go.
local free = tonumber(free_of(shard, group))
redis.call("DEL", prefix .. ":tat:" .. group)
local function let_go(put_off)
  local ready = prefix .. ":ready:" .. tier_of(shard, put_off)
  local due = redis.call("ZSCORE", ready, put_off)
  if due and math.abs(tonumber(due) * 1000 - free) < 1 then
    redis.call("ZADD", ready, "XX", hold_due(shard, put_off, score(shard.now)), put_off)
  end
end
if free then
  let_go(group)
  for _, started in ipairs(started_of(shard, group, false)) do let_go(started) end
end
hint(shard)
return { former }
