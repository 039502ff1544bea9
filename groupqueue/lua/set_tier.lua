-- set_tier: move a group, backlog and all, into another tier; it keeps its place in time.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] group   string
-- ARGV[2] tier    0..4
-- Reply {"ok", former tier} | {"empty"}
-- Keeps: a group stands in exactly one tier, in whatever state it is.
--@include open_shard
--@include digits
--@include read
--@include tier_of
--@include read_if_fit
--@include started_of
--@include hint
local shard = open_shard(KEYS[1], { "prio", "backlog", "wake", "paused",
  "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local prefix, group, tier = shard.prefix, ARGV[1], ARGV[2]
local first, is_moved
local function move(moved)
  local depth = read_if_fit("LLEN", prefix .. ":q:" .. moved) or 0
  local known = redis.call("HGET", prefix .. ":prio", moved) -- of a wide group all may be started
  if depth == 0 and not known then return end
  local former = tier_of(shard, moved, known)
  first = first or former
  redis.call("HSET", prefix .. ":prio", moved, tier)
  if former == tier then return end
  is_moved = true
  if depth == 0 then return end
  local due = redis.call("ZSCORE", prefix .. ":ready:" .. former, moved)
  redis.call("ZREM", prefix .. ":ready:" .. former, moved)
  redis.call("ZADD", prefix .. ":ready:" .. tier, due or digits(shard.now_ms), moved)
  redis.call("HINCRBY", prefix .. ":backlog", former, digits(-depth))
  redis.call("HINCRBY", prefix .. ":backlog", tier, digits(depth))
end
read("LLEN", prefix .. ":q:" .. group)
move(group)
for _, started in ipairs(started_of(shard, group)) do move(started) end
if not first then return { "empty" } end
if is_moved then hint(shard) end
return { "ok", first }
