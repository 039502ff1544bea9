-- stamp: run a script and write down what it did, as the last thing it does.
-- @NAME@ and @BODY@ are filled in, see stamps.py. The record, packed, goes to the end of the list
-- `history:{<queue>:<shard>}`:
--   number, script, µs of the server's clock as the script read it, commands called, ARGV,
--   whether it failed, its reply or its error's text, effects
-- An effect is {command, key without the prefix, reply, what follows the key ...}: of every command
-- that may change one of the keys below. Of a command that names several keys, one each.
local NOTED = { dead = true, ["scheduled:data"] = true, wide = true }
local NOTED_PER = { q = true, lock = true }
local IS_READ = {
  EXISTS = true, GET = true, HEXISTS = true, HGET = true, HGETALL = true, HLEN = true, HMGET = true,
  HSCAN = true, LINDEX = true, LLEN = true, LRANGE = true, MGET = true, PTTL = true, TIME = true,
  TYPE = true, XLEN = true, XRANGE = true, XREVRANGE = true,
}
local IS_OF_KEYS = { DEL = true, UNLINK = true }

local commands, effects, now_us = 0, {}, nil

local function note(reply, command, key, ...)
  if type(key) ~= "string" then return end
  local name = string.sub(key, #KEYS[1] + 2)
  if NOTED[name] or NOTED_PER[string.match(name, "^(%a+):")] then
    table.insert(effects, { command, name, reply, ... })
  end
end

local function see(reply, ...)
  local command = ...
  if command == "TIME" then
    now_us = now_us or tonumber(reply[1]) * 1000000 + tonumber(reply[2])
  elseif type(reply) == "table" and reply.err then
    return
  elseif IS_OF_KEYS[command] then
    for index = 2, select("#", ...) do note(reply, command, (select(index, ...))) end
  elseif not IS_READ[command] then
    note(reply, ...)
  end
end

local function seen(call)
  return function(...)
    commands = commands + 1
    local reply = call(...)
    see(reply, ...)
    return reply
  end
end

local function body(redis)
@BODY@
end

local is_done, reply = pcall(body, setmetatable({ call = seen(redis.call), pcall = seen(redis.pcall) }, { __index = redis }))
local history, told = "history:" .. string.match(KEYS[1], "{.*}"), reply
if not is_done then told = type(reply) == "table" and reply.err or tostring(reply) end
if not now_us then see(redis.call("TIME"), "TIME") end
redis.call("RPUSH", history, cmsgpack.pack({
  redis.call("INCR", history .. ":last"), @NAME@, now_us, commands, ARGV, not is_done, told, effects,
}))
if not is_done then error(reply, 0) end
return reply
