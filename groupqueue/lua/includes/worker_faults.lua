-- worker_faults: what is wrong with a worker's entry in the registry, and whose it is.
--@include is_moment
local CLOCKS_APART_MS = 60000 -- clocks are set now and then

local function worker_faults(shard, worker)
  local seen = redis.call("ZSCORE", shard.prefix .. ":workers", worker)
  if not seen or is_moment(seen, shard.now_ms + CLOCKS_APART_MS) then return {}, worker end
  return { { "bad-heartbeat", seen } }, worker
end
