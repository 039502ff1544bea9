-- kind_of: what a key of the shard is, by its name without the prefix: its type, whether it
-- must expire, of what there is one each, and which one it is; nil for a key that is not ours.
-- A new key has its row here; a lock is not said to expire, as `group_faults` judges it.
local KEY_TYPES = {
  prio = "hash", attempts = "hash", failures = "hash", errors = "hash", holders = "hash",
  paused = "hash", doomed = "hash", wide = "hash", rates = "hash", backlog = "hash", stats = "hash", meta = "hash",
  ["ready:0"] = "zset", ["ready:1"] = "zset", ["ready:2"] = "zset", ["ready:3"] = "zset",
  ["ready:4"] = "zset", scheduled = "zset", ["scheduled:data"] = "hash",
  ["scheduled:held"] = "hash", ["scheduled:dedup"] = "hash",
  dead = "stream", fence = "string", wake = "list", workers = "zset",
}
local KEY_TYPES_PER = { -- {type, must expire}
  q = { "list", false }, places = { "zset", false }, lock = { "string", false }, batch = { "string", true },
  tat = { "string", true }, dedup = { "string", true }, publisher = { "string", true },
  turn = { "string", true }, worker = { "hash", true }, stats = { "hash", true },
}

local function kind_of(name)
  if KEY_TYPES[name] then return KEY_TYPES[name], false end
  local per, which = string.match(name, "^(%a+):(.*)$")
  local kind = KEY_TYPES_PER[per]
  if not kind or (which == "" and per ~= "tat") then return nil end
  if per == "stats" and string.find(which, "%D") then return nil end
  return kind[1], kind[2], per, which
end
