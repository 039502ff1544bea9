-- wanted_place: what `places` should say of a started message, given what see_group saw of it;
-- see free_place.
local SOON_MS = 1000
local WAITS_MS = 60000 -- for a place, see has_place

local function wanted_place(shard, seen)
  if seen.is_leased then return "1" end
  if seen.paused then return "3" end
  local place = string.match(seen.place or "", "^[012]$") or "0"
  -- In flight is also one whose lease ran out, or is gone, until it is looked at. A rate puts any off.
  local due = seen.stands[1] and tonumber(seen.stands[1].due) or 0
  local latest = shard.now_ms + SOON_MS + (place == "2" and WAITS_MS or 0)
  return (due > latest and not seen.is_rated and not seen.holder) and "0" or place
end
