-- note_call: remember the number of a publisher's call that took effect.
local PUBLISHER_KEPT_MS = "600000" -- far longer than a client repeats a call

local function note_call(shard, publisher, sequence)
  redis.call("SET", shard.prefix .. ":publisher:" .. publisher, sequence, "PX", PUBLISHER_KEPT_MS)
end
