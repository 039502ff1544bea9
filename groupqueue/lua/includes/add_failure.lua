-- add_failure: count a failure of a group's head; the first one's moment is kept with it.
--@include digits
local function add_failure(shard, group)
  local key = shard.prefix .. ":failures"
  local count, since = string.match(redis.call("HGET", key, group) or "", "^(%d+) (%d+)$")
  redis.call("HSET", key, group,
    digits((tonumber(count) or 0) + 1) .. " " .. (since or digits(shard.now_ms)))
  shard.size.failures = math.max(shard.size.failures, 1)
end
