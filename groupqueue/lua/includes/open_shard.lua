-- open_shard: what every script needs first: the prefix, the server's clock
-- (read once), and proof that the keys which are named hold what they should. Errors are found
-- here, before anything is written. Counters and hints need no proof: see add_to and hint.
-- `shard.size[name]` is how much each of the keys holds, 0 when it does not exist; for `fence`
-- it is the last token itself, false when there is none. Who
-- names `scheduled` is told in `shard.size.held` how many of these messages are held; who
-- names `paused`, in `shard.flags`, what is special about the queue, see set_flag.
--@include digits
--@include read
-- Asking for a key's size costs a third of asking for its type, and proves as much.
local SIZE_OF = { -- all others are hashes
  wake = "LLEN", dead = "XLEN", fence = "GET", workers = "ZCARD", scheduled = "ZCARD",
  ["ready:0"] = "ZCARD", ["ready:1"] = "ZCARD", ["ready:2"] = "ZCARD",
  ["ready:3"] = "ZCARD", ["ready:4"] = "ZCARD",
}

local function open_shard(prefix, names)
  local time = redis.call("TIME")
  local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
  -- A table that is made with its fields need not grow, which costs more than to fill it.
  local size = { paused = 0, held = 0, scheduled = 0, attempts = 0, failures = 0, errors = 0, holders = 0, fence = false,
    ["ready:0"] = 0, ["ready:1"] = 0, ["ready:2"] = 0, ["ready:3"] = 0, ["ready:4"] = 0 }
  local shard = { prefix = prefix, size = size, flags = "", now_us = now_us,
    now = now_us / 1000, -- epoch ms with the µs as its fraction: scores never tie
    now_ms = math.floor(now_us / 1000), minute = "stats:" .. digits(math.floor(now_us / 60000000)) }
  for _, name in ipairs(names) do
    size[name] = read(SIZE_OF[name] or "HLEN", prefix .. ":" .. name)
  end
  if size.paused > 0 then shard.flags = redis.call("HGET", prefix .. ":paused", "") or "" end
  if shard.flags ~= "" then
    -- The keys that only those have who use something special, by its flag.
    local KEY_OF = { stopped = "meta", rates = "rates", doomed = "doomed", wide = "wide" }
    for word in string.gmatch(shard.flags, "%a+") do
      if KEY_OF[word] then read("HLEN", prefix .. ":" .. KEY_OF[word]) end
    end
  end
  if size.scheduled > 0 then
    -- A held message has no data: who holds none need not look at the heads of groups.
    local data = size["scheduled:data"] or read("HLEN", prefix .. ":scheduled:data")
    if data ~= size.scheduled then size.held = read("HLEN", prefix .. ":scheduled:held") end
  end
  return shard
end
