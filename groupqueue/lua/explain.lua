-- explain: everything about one group, at a cost that no queue's length changes.
-- FLAGS no-writes
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] group   string
-- Reply {now_ms, group row as in includes/group_row.lua, {due groups ahead by waiting,
--   due groups in higher tiers}, {holder's field, value, …}, ms and reason of a stop of the
--   whole queue or "", µs from when on the rate of the whole queue lets a message go or "", how
--   many of its messages are still to be set aside and the id of that which takes them along, or ""}
-- Keeps: nothing is written.
--@include open_shard
--@include read
--@include group_row
--@include has_flag
--@include free_of
local shard = open_shard(KEYS[1], { "prio", "attempts", "failures", "errors", "holders", "paused", "scheduled",
  "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local prefix, group = shard.prefix, ARGV[1]
local row = group_row(shard, group)
local tier, due = row[2], row[3]
local ahead, above = 0, 0
if row[6] == "" and tonumber(due) and tonumber(due) <= shard.now then
  local now = string.format("%.3f", shard.now)
  for _, other in ipairs({ "0", "1", "2", "3", "4" }) do
    ahead = ahead + redis.call("ZCOUNT", prefix .. ":ready:" .. other, "-inf", "(" .. due)
    if other > tier then
      above = above + redis.call("ZCOUNT", prefix .. ":ready:" .. other, "-inf", now)
    end
  end
end
return { shard.now_ms, row, { ahead, above },
  row[8] ~= "" and read("HGETALL", prefix .. ":worker:" .. row[8]) or {},
  has_flag(shard, "stopped") and redis.call("HGET", prefix .. ":meta", "stopped") or "",
  free_of(shard, ""), has_flag(shard, "doomed") and redis.call("HGET", prefix .. ":doomed", group) or "" }
