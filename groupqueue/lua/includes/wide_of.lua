-- wide_of: the wide group of which a group is one started message; nil for any other group.
-- Its name is "<group>\255<id>": 255 is no byte of UTF-8, so no group is called that.
local function wide_of(group)
  if string.byte(group, -33) ~= 255 then return nil end
  return string.sub(group, 1, -34)
end
