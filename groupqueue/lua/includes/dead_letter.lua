-- dead_letter: set a group's head aside, with what is known of it.
--@include failures_of
local function dead_letter(shard, group, tier, reason, message)
  local prefix = shard.prefix
  local element = redis.call("LPOP", prefix .. ":q:" .. group)
  redis.call("XADD", prefix .. ":dead", "*",
    "group", group, "tier", tier, "element", element, "reason", reason, "error", message,
    "deliveries", redis.call("HGET", prefix .. ":attempts", group) or "0",
    "failures", failures_of(shard, group))
end
