-- trim: throw old dead letters away, the oldest first.
-- FLAGS allow-oom
-- KEYS[1] prefix      routing key of the shard
-- ARGV[1] max_age_ms  integer or ""  letters older than that
-- ARGV[2] max_count   integer or ""  letters beyond that many
-- Reply {letters thrown away}; 500 at most: ask again while there are so many
-- Keeps: what neither limit speaks of.
--@include open_shard
--@include digits
--@include tally
local MOST_TRIMMED = 500

local shard = open_shard(KEYS[1], { "stats", "minute", "dead" })
local dead, over = shard.prefix .. ":dead", 0
local upto = ARGV[1] ~= "" and shard.now_ms - tonumber(ARGV[1]) or -1
if ARGV[2] ~= "" then over = shard.size.dead - tonumber(ARGV[2]) end
local gone = {}
for index, letter in ipairs(redis.call("XRANGE", dead, "-", "+", "COUNT", digits(MOST_TRIMMED))) do
  local moment = tonumber(string.match(letter[1], "^%d+"))
  if index > over and moment > upto then break end
  gone[index] = letter[1]
end
if #gone > 0 then
  redis.call("XDEL", dead, unpack(gone))
  tally(shard, "trimmed", #gone)
end
return { #gone }
