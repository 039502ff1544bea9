-- allow_reading: how many messages, and bytes of them, a call may read; see window_of.
local function allow_reading(shard)
  shard.may_read, shard.may_read_bytes = 2000, 4194304
end
