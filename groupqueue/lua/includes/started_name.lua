-- started_name: the name of the group that a message of a wide group is once it has been started,
-- given its element or id; see wide_of. What is no message may be shorter than an id.
local NO_ID = string.rep("0", 32)

local function started_name(wide, element)
  local id = string.sub(element, 1, 32)
  return wide .. "\255" .. id .. string.sub(NO_ID, #id + 1)
end
