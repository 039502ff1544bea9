-- held: read the groups that are paused or halted, page by page.
-- FLAGS no-writes
-- KEYS[1] prefix  routing key of the shard
-- ARGV[1] cursor  string   "0" at first, then what the last reply said, until "0"
-- ARGV[2] limit   integer  1..200; about so many groups, or all that a small hash has
-- Reply {now_ms, groups held in all, cursor, {group row as in includes/group_row.lua, …}}
-- Keeps: nothing is written; a group that is held all the while is read at least once.
--@include open_shard
--@include group_row
local shard = open_shard(KEYS[1], { "prio", "attempts", "failures", "errors", "holders", "paused", "scheduled",
  "ready:0", "ready:1", "ready:2", "ready:3", "ready:4" })
local page = redis.call("HSCAN", shard.prefix .. ":paused", ARGV[1], "COUNT", ARGV[2])
local rows = {}
for index = 1, #page[2], 2 do
  if page[2][index] ~= "" then table.insert(rows, group_row(shard, page[2][index])) end -- "": see set_flag
end
return { shard.now_ms, shard.size.paused - (shard.flags ~= "" and 1 or 0), page[1], rows }
