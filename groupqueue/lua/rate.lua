-- rate: say how often messages of a group, or of the whole queue, may be delivered.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] group   string or ""   "" for all of the queue
-- ARGV[2] rate    "<interval in µs> <burst>" | "none" (any number, whatever the settings say) |
--                 "" (as the settings say)
-- ARGV[3] cursor  string   "0" at first, then what the last reply said, until "0"
-- ARGV[4] operation  string  the same for all calls of one change
-- Reply {former rate, or "" when there was none, cursor}
-- Keeps: it holds from the next claim on, for waiting, parked and leased groups; what a rate
-- has let through counts until another one is given. Of a wide group a call lets about 500 started
-- messages go that the former rate has put off.
--@include open_shard
--@include score
--@include digits
--@include tier_of
--@include wide_of
--@include free_of
--@include hold_due
--@include has_flag
--@include read_if_fit
--@include set_flag
--@include note_call
--@include hint
local shard = open_shard(KEYS[1], { "prio", "paused", "rates", "scheduled", "ready:0", "ready:1",
  "ready:2", "ready:3", "ready:4" })
local prefix, group, cursor = shard.prefix, ARGV[1], ARGV[3]
local former = redis.call("HGET", prefix .. ":rates", group) or ""
local is_new = cursor == "0" and former ~= ARGV[2]
local free -- until when the former rate has put off whoever came

if is_new then
  if ARGV[2] == "" then
    redis.call("HDEL", prefix .. ":rates", group)
  else
    redis.call("HSET", prefix .. ":rates", group, ARGV[2])
  end
  set_flag(shard, "rates", redis.call("HLEN", prefix .. ":rates") > 0)
  -- Under the new rate nothing is used up, and what the former one has put off may go.
  free = tonumber(free_of(shard, group))
  redis.call("DEL", prefix .. ":tat:" .. group)
else
  free = tonumber(read_if_fit("GET", prefix .. ":publisher:" .. ARGV[4]) or "")
end
if not (is_new or free) then return { former, "0" } end

local function let_go(put_off)
  local ready = prefix .. ":ready:" .. tier_of(shard, put_off)
  local due = redis.call("ZSCORE", ready, put_off)
  if due and math.abs(tonumber(due) * 1000 - free) < 1 then
    redis.call("ZADD", ready, "XX", hold_due(shard, put_off, score(shard.now)), put_off)
  end
end
local following, places = "0", prefix .. ":places:" .. group
if free then
  let_go(group)
  if has_flag(shard, "wide") and read_if_fit("ZCARD", places) then
    local page = redis.call("ZSCAN", places, cursor, "COUNT", "500")
    following = page[1]
    for index = 1, #page[2], 2 do
      if wide_of(page[2][index]) == group then let_go(page[2][index]) end
    end
  end
  -- Whoever goes on, or repeats this call, is told by it until when.
  if is_new and following ~= "0" then note_call(shard, ARGV[4], digits(free)) end
end
hint(shard)
return { former, following }
