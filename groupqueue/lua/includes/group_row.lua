-- group_row: what people are told of one group:
--   {group, tier, due (text), depth, head (58 bytes or ""), token, lease left ms,
--    holder, deliveries, failures, error, why held, rate of its own, µs from when on a rate lets
--    it go or "", whether its head was published to hold it, width of a wide group or 0; how
--    many of its messages are in flight, have been started, are halted}
-- Tier and due moment are looked up when they are not given; no moment is "".
--@include read
--@include tier_of
--@include failures_of
--@include has_flag
--@include width_of
--@include read_if_fit
--@include free_of
local function group_row(shard, group, tier, due)
  local prefix = shard.prefix
  local function field(name)
    return redis.call("HGET", prefix .. ":" .. name, group) or ""
  end
  tier = tier or tier_of(shard, group)
  due = due or redis.call("ZSCORE", prefix .. ":ready:" .. tier, group) or ""
  local token = read("GET", prefix .. ":lock:" .. group) or ""
  local head = read("LINDEX", prefix .. ":q:" .. group, 0) or ""
  local is_leased = token ~= ""
  local width, places = width_of(shard, group), prefix .. ":places:" .. group
  local started = width and read_if_fit("ZCARD", places)
  return { group, tier, due, read("LLEN", prefix .. ":q:" .. group), string.sub(head, 1, 58),
    token, is_leased and redis.call("PTTL", prefix .. ":lock:" .. group) or 0,
    is_leased and field("holders") or "", string.match(field("attempts"), "^%d+") or "", failures_of(shard, group),
    field("errors"), field("paused"), has_flag(shard, "rates") and field("rates") or "",
    free_of(shard, group),
    shard.size.held > 0 and redis.call("HEXISTS", prefix .. ":scheduled:held", string.sub(head, 1, 32)) or 0,
    width or 0, started and redis.call("ZCOUNT", places, "1", "1") or 0, started or 0,
    started and redis.call("ZCOUNT", places, "3", "3") or 0 }
end
