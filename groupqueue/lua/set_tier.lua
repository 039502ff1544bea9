-- set_tier: move a group, backlog and all, into another tier; it keeps its place in time.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] group   string
-- ARGV[2] tier    0..4
-- ARGV[3] cursor  string  "0" at first, then what the last reply said, until "0"
-- Reply {"ok" | "empty", cursor}
-- Keeps: a group stands in exactly one tier, in whatever state it is. Of a wide group a call moves
-- about 500 started messages; one that is started meanwhile is in the new tier already.
--@include open_shard
--@include digits
--@include add_to
--@include read
--@include tier_of
--@include read_if_fit
--@include has_flag
--@include wide_of
--@include hint
local shard = open_shard(KEYS[1], { "prio", "paused", "ready:0", "ready:1", "ready:2", "ready:3",
  "ready:4" })
local prefix, group, tier = shard.prefix, ARGV[1], ARGV[2]
local is_known, is_moved
local function move(moved)
  local depth = read_if_fit("LLEN", prefix .. ":q:" .. moved) or 0
  local known = redis.call("HGET", prefix .. ":prio", moved) -- of a wide group all may be started
  if depth == 0 and not known then return end
  local former = tier_of(shard, moved, known)
  is_known = true
  redis.call("HSET", prefix .. ":prio", moved, tier)
  if former == tier then return end
  is_moved = true
  if depth == 0 then return end
  local due = redis.call("ZSCORE", prefix .. ":ready:" .. former, moved)
  redis.call("ZREM", prefix .. ":ready:" .. former, moved)
  redis.call("ZADD", prefix .. ":ready:" .. tier, due or digits(shard.now_ms), moved)
  add_to(prefix .. ":backlog", former, digits(-depth))
  add_to(prefix .. ":backlog", tier, digits(depth))
end
read("LLEN", prefix .. ":q:" .. group)
move(group)
local cursor, places = "0", prefix .. ":places:" .. group
if has_flag(shard, "wide") and read_if_fit("ZCARD", places) then
  local page = redis.call("ZSCAN", places, ARGV[3], "COUNT", "500")
  cursor = page[1]
  for index = 1, #page[2], 2 do
    if wide_of(page[2][index]) == group then move(page[2][index]) end
  end
end
if is_moved then hint(shard) end
return { is_known and "ok" or "empty", cursor }
