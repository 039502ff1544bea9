-- dead_letter: set a group's head aside, with what is known of it. Returns true; or, when the
-- stream of dead letters takes no more, false and why: then nothing is written.
--@include failures_of
--@include wide_of
--@include width_of
--@include digits
--@include forget_scheduled
local function dead_letter(shard, group, tier, reason, message)
  local prefix = shard.prefix
  local list = prefix .. ":q:" .. group
  local element = redis.call("LINDEX", list, 0)
  local whole = wide_of(group) or group
  local width = width_of(shard, whole)
  local added = redis.pcall("XADD", prefix .. ":dead", "*",
    "group", whole, "tier", tier, "element", element, "reason", reason, "error", message,
    "deliveries", redis.call("HGET", prefix .. ":attempts", group) or "0",
    "failures", failures_of(shard, group),
    unpack(width and { "width", digits(width) } or {}))
  if type(added) == "table" and added.err then return false, added.err end
  redis.call("LPOP", list)
  if shard.size.held > 0 then forget_scheduled(shard, { string.sub(element, 1, 32) }) end -- it may be held
  return true
end
