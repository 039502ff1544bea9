-- is_hold: whether a text tells as it should since when and why something is held:
-- `paused <ms> <why>` or `halted <ms> <reason>`; a kind that is given is left out.
--@include is_whole_number
local function is_hold(text, is_of_queue)
  local kind, since = string.match(is_of_queue and "paused " .. text or text, "^(%a+) (%d+) ")
  return (kind == "paused" or kind == "halted") and is_whole_number(since)
end
