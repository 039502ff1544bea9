-- trim: throw old dead letters away, the oldest first.
-- FLAGS allow-oom
-- KEYS[1] prefix      routing key of the shard
-- ARGV[1] max_age_ms  integer or ""  letters older than that
-- ARGV[2] max_count   integer or ""  letters beyond that many
-- Reply {letters thrown away}; about 500 at most: ask again until there are none
-- Keeps: what neither limit speaks of; no letter is read, however large.
--@include open_shard
--@include digits
--@include tally
local MOST_TRIMMED = 500

local shard = open_shard(KEYS[1], { "dead" })
local dead, size, trimmed = shard.prefix .. ":dead", shard.size.dead, 0
local over = ARGV[2] ~= "" and size - tonumber(ARGV[2]) or 0
if over > 0 then
  trimmed = redis.call("XTRIM", dead, "MAXLEN", "=", digits(size - math.min(over, MOST_TRIMMED)))
elseif ARGV[1] ~= "" and size > 0 then
  local oldest = digits(math.max(0, shard.now_ms - tonumber(ARGV[1])))
  -- The server keeps letters in blocks: whole blocks first, as only so it takes a limit.
  trimmed = redis.call("XTRIM", dead, "MINID", "~", oldest, "LIMIT", digits(MOST_TRIMMED))
  if trimmed == 0 then trimmed = redis.call("XTRIM", dead, "MINID", "=", oldest) end
end
tally(shard, "trimmed", trimmed)
return { trimmed }
