-- resume: let a paused or halted group go on; a halted head gets a new set of attempts.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] group   string
-- ARGV[2] operation  string  tells a repetition from a new call
-- Reply {"ok", "paused" | "halted"} | {"not paused"} | {"repeated"}
-- Keeps: a leased group's score is its lease's deadline again. Of a wide group, a thousand of
-- its halted messages go on as well.
--@include open_shard
--@include digits
--@include score
--@include tier_of
--@include forget_heads
--@include hold_due
--@include started_of
--@include width_of
--@include free_place
--@include hint
--@include is_repeated
--@include note_call
local shard = open_shard(KEYS[1], { "prio", "attempts", "failures", "errors", "paused",
  "scheduled", "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local prefix, group = shard.prefix, ARGV[1]
if is_repeated(shard, ARGV[2], "1") then return { "repeated" } end
local first
local function let_go(held, now)
  local why = redis.call("HGET", prefix .. ":paused", held)
  if not why then return end
  local kind = string.match(why, "^%a+")
  local lease_ms, due = redis.call("PTTL", prefix .. ":lock:" .. held), score(now)
  due = lease_ms > 0 and digits(shard.now_ms + lease_ms) or hold_due(shard, held, due)
  redis.call("HDEL", prefix .. ":paused", held)
  if kind == "halted" then forget_heads(shard, { held }) end
  redis.call("ZADD", prefix .. ":ready:" .. tier_of(shard, held), "XX", due, held)
  first = first or kind or "paused" -- what somebody else wrote may say nothing
end
let_go(group, shard.now)
for _, halted in ipairs(started_of(shard, group, "3")) do
  let_go(halted, shard.now - 0.001)
  redis.call("ZADD", prefix .. ":places:" .. group, "0", halted)
end
if not first then return { "not paused" } end
for _ = 1, width_of(shard, group) or 0 do
  if not free_place(shard, group) then break end
end
note_call(shard, ARGV[2], "1")
hint(shard)
return { "ok", first }
