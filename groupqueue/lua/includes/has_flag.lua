-- has_flag: tell whether something special is in use in this queue; see set_flag.
local function has_flag(shard, word)
  return shard.flags ~= "" and string.find(shard.flags, word, 1, true) ~= nil
end
