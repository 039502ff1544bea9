-- bad_value: what a key of its own holds that scripts would stumble over, as text; nil if it holds
-- what it should. Takes its name without the prefix, and of what there is one each, see kind_of.
--@include read_if_fit
local SOUND_VALUES = { -- {longest, pattern, …}
  batch = { 40, "^[1-9]%d* %d+$", "^%-[1-9]%d*$" }, tat = { 40, "^%d+ %d+$" }, publisher = { 17, "^%d+$" },
  turn = { 17, "^%d+$" }, dedup = { 1000, "^" .. string.rep("%x", 32) },
}
local MOST_AHEAD_US = 3660 * 86400000000 -- no rate takes longer

local function bad_value(shard, name, per)
  local sound = SOUND_VALUES[per]
  local value = sound and read_if_fit("GET", shard.prefix .. ":" .. name)
  if not value then return nil end
  for index = 2, #value <= sound[1] and #sound or 1 do
    if string.find(value, sound[index])
      and (per ~= "tat" or tonumber(string.match(value, "^%d+")) < shard.now_us + MOST_AHEAD_US) then
      return nil
    end
  end
  return string.sub(value, 1, 50)
end
