-- noted_faults: what cannot be understood of what operators, or a failure of its head, have said of
-- a group, given what see_group saw: {{word, detail}, …}.
--@include digits
--@include is_hold
--@include parsed_rate
local MOST_SHOWN = 50

local function noted_faults(seen)
  local faults = {}
  local function fault(word, detail) table.insert(faults, { word, detail }) end
  if seen.paused and not is_hold(seen.paused) then
    fault("bad-pause", string.sub(seen.paused, 1, MOST_SHOWN))
  end
  if seen.rate and seen.rate ~= "none" and not parsed_rate(seen.rate) then
    fault("bad-rate", string.sub(seen.rate, 1, MOST_SHOWN))
  end
  local count = seen.doomed and tonumber(string.match(seen.doomed, "^([1-9]%d*) "))
  -- Without messages it is left over.
  if seen.doomed and seen.depth > 0 and not (count and count <= seen.depth) then
    fault("bad-doom", string.sub(seen.doomed, 1, MOST_SHOWN) .. "; " .. digits(seen.depth))
  end
  return faults
end
