-- is_due_moment: whether a group can be due at a score, given what see_group saw of it. What its
-- head holds it until may be any moment; no pause between attempts and no rate takes 100 years.
--@include is_moment
local LONGEST_PAUSE_MS = 100 * 366 * 86400000

local function is_due_moment(shard, seen, score)
  return is_moment(score, not seen.held_until and shard.now_ms + LONGEST_PAUSE_MS or nil)
end
