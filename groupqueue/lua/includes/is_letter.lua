-- is_letter: whether the fields of an entry among the dead letters are those of one, which can be put back.
local function is_letter(letter)
  return (letter.group or "") ~= "" and letter.element and string.find(letter.tier or "", "^[0-4]$") ~= nil
end
