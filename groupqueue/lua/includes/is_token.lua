-- is_token: whether a text is a fencing token that others can follow: a number that the server's
-- clock in µs has reached, or will within ten years, so that adding to it stays exact.
local AHEAD_US = 3660 * 86400000000

local function is_token(shard, text)
  return string.find(text, "^%d+$") ~= nil and tonumber(text) < shard.now_us + AHEAD_US
end
