-- sooner: the shorter of two waits in ms, of which -1 means for ever.
local function sooner(one, other)
  if one < 0 then return other end
  if other < 0 then return one end
  return math.min(one, other)
end
