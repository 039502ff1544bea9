-- failures_of: how many failures a group's head has had, as text.
local function failures_of(shard, group)
  return string.match(redis.call("HGET", shard.prefix .. ":failures", group) or "", "^%d+") or "0"
end
