-- dead_letter: set a group's head aside, with what is known of it.
--@include failures_of
--@include wide_of
--@include width_of
--@include digits
--@include forget_scheduled
local function dead_letter(shard, group, tier, reason, message)
  local prefix = shard.prefix
  local element = redis.call("LPOP", prefix .. ":q:" .. group)
  local whole = wide_of(group) or group
  local width = width_of(shard, whole)
  if shard.size.held > 0 then forget_scheduled(shard, { string.sub(element, 1, 32) }) end -- it may be held
  redis.call("XADD", prefix .. ":dead", "*",
    "group", whole, "tier", tier, "element", element, "reason", reason, "error", message,
    "deliveries", redis.call("HGET", prefix .. ":attempts", group) or "0",
    "failures", failures_of(shard, group),
    unpack(width and { "width", digits(width) } or {}))
end
