-- open_shard: what every script needs first: the prefix, the server's clock
-- (read once), and proof that the shard's own keys hold what they should. Errors
-- are found here, before anything is written.
-- `shard.size[name]` is how much each of the keys holds, 0 when it does not exist; for `fence`
-- it is the last token itself, false when there is none. Who
-- names `scheduled` is told in `shard.size.held` how many of these messages are held; who
-- names `paused`, in `shard.flags`, what is special about the queue, see set_flag.
--@include digits
--@include read
-- The keys that only those have who use something special, by its flag.
local KEY_OF = { stopped = "meta", rates = "rates", doomed = "doomed", wide = "wide" }

-- Asking for a key's size costs a third of asking for its type, and proves as much.
local SIZE_OF = { -- all others are hashes
  wake = "LLEN", dead = "XLEN", fence = "GET", workers = "ZCARD", scheduled = "ZCARD",
  ["ready:0"] = "ZCARD", ["ready:1"] = "ZCARD", ["ready:2"] = "ZCARD",
  ["ready:3"] = "ZCARD", ["ready:4"] = "ZCARD",
}

local function open_shard(prefix, names)
  local time = redis.call("TIME")
  local shard, size = { prefix = prefix }, {}
  shard.size = size
  shard.now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
  shard.now = shard.now_us / 1000 -- epoch ms with the µs as its fraction: scores never tie
  shard.now_ms = math.floor(shard.now)
  shard.minute = "stats:" .. digits(math.floor(shard.now_ms / 60000))
  for index = 1, #names do
    local name = names[index]
    local key = prefix .. ":" .. (name == "minute" and shard.minute or name)
    size[name] = read(SIZE_OF[name] or "HLEN", key)
  end
  shard.flags = (size.paused or 0) > 0 and redis.call("HGET", prefix .. ":paused", "") or ""
  for word in string.gmatch(shard.flags, "%a+") do
    if KEY_OF[word] then read("HLEN", prefix .. ":" .. KEY_OF[word]) end
  end
  size.held = 0
  if (size.scheduled or 0) > 0 then
    -- A held message has no data: who holds none need not look at the heads of groups.
    local data = size["scheduled:data"] or read("HLEN", prefix .. ":scheduled:data")
    if data ~= size.scheduled then size.held = read("HLEN", prefix .. ":scheduled:held") end
  end
  return shard
end
