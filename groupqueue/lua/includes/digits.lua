-- digits: a whole number as text; Lua's own tostring turns large ones into 1e+15.
local function digits(number)
  return string.format("%d", number)
end
