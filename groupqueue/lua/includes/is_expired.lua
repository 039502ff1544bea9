-- is_expired: tell whether a message is too old to be delivered. What is no message never is,
-- and what is to hold its group is not before its own moment.
--@lazy is_held
local NEVER_EXPIRES = "0000000000000"

local function is_expired(shard, element)
  local expires = string.sub(element, 46, 58)
  if expires == NEVER_EXPIRES or #expires < 13 or string.find(expires, "%D") then return false end
  return tonumber(expires) <= shard.now_ms and not is_held(shard, element)
end
