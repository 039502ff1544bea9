-- is_whole_number: whether a text is a whole number that can be counted on.
local function is_whole_number(text)
  return string.find(text, "^-?%d+$") ~= nil and #text < 18
end
