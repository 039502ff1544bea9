-- open_shard: what every script needs first: the prefix, the server's clock
-- (read once), and proof that the shard's own keys hold what they should. Errors
-- are found here, before anything is written: `shard.wrong` is then the reply.
-- `shard.present[name]` says which of the keys exist.
--@include digits
local KEY_TYPES = {
  prio = "hash", attempts = "hash", failures = "hash", errors = "hash", holders = "hash",
  paused = "hash", backlog = "hash", stats = "hash", meta = "hash", wake = "list",
  dead = "stream", fence = "string", workers = "zset",
  ["ready:0"] = "zset", ["ready:1"] = "zset", ["ready:2"] = "zset",
  ["ready:3"] = "zset", ["ready:4"] = "zset",
}

local function open_shard(prefix, names)
  local time = redis.call("TIME")
  local shard = { prefix = prefix, present = {} }
  shard.now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
  shard.now = shard.now_us / 1000 -- epoch ms with the µs as its fraction: scores never tie
  shard.now_ms = math.floor(shard.now)
  shard.minute = "stats:" .. digits(math.floor(shard.now_ms / 60000))
  for _, name in ipairs(names) do
    local key = prefix .. ":" .. (name == "minute" and shard.minute or name)
    local expected = KEY_TYPES[name] or "hash"
    local actual = redis.call("TYPE", key).ok
    if actual == expected then
      shard.present[name] = true
    elseif actual ~= "none" then
      shard.wrong = redis.error_reply("WRONGKEY " .. key .. " is a " .. actual .. ", not a " .. expected)
      return shard
    end
  end
  return shard
end
