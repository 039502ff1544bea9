-- release: end a group's lease on an operator's word; its holder can settle it no more.
-- FLAGS allow-oom
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] group   string
-- ARGV[2] token   integer or ""  which lease is meant; "" for whichever it has, of a wide group all
-- ARGV[3] operation  string  tells a repetition from a new call
-- Reply {"ok", token} | {"not leased"} | {"repeated"}
-- Keeps: the delivery does not count; lock and score change together; a repetition does
-- not end a lease that was given in between.
--@include open_shard
--@include read
--@include score
--@include tier_of
--@include tally
--@include uncount
--@include leased_together
--@include end_leases
--@include started_of
--@include hint
--@include is_repeated
--@include note_call
local shard = open_shard(KEYS[1], { "prio", "attempts", "holders", "paused", "scheduled",
  "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local prefix, group = shard.prefix, ARGV[1]
if is_repeated(shard, ARGV[3], "1") then return { "repeated" } end
local places, ended, messages = {}, "", 0
local function look_at(held)
  local token = read("GET", prefix .. ":lock:" .. held)
  if not token or (ARGV[2] ~= "" and ARGV[2] ~= token) then return end
  ended = token
  table.insert(places, { held, tier_of(shard, held), score(shard.now - 0.001), read("LLEN", prefix .. ":q:" .. held) })
end
look_at(group)
for _, started in ipairs(started_of(shard, group, "1")) do look_at(started) end
if #places == 0 then return { "not leased" } end
for _, place in ipairs(places) do
  local together = leased_together(shard, place[1])
  uncount(shard, place[1])
  if together > 1 then redis.call("DEL", prefix .. ":batch:" .. place[1]) end
  end_leases(shard, { place })
  messages = messages + together
end
tally(shard, "released", messages)
note_call(shard, ARGV[3], "1")
hint(shard)
return { "ok", ended }
