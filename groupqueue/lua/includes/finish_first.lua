-- finish_first: of a lease of several messages, finish those before the one that its
-- settlement is about, which becomes the head and was delivered once; see settle. Returns how
-- many left the group.
--@include digits
--@include read_if_fit
--@include forget_heads
local function finish_first(shard, s)
  local note, gone = shard.prefix .. ":batch:" .. s.group, tonumber(s.done)
  -- Alone after a crash: with each that ends well, one less of those that were together.
  local left = s.together == "-1" and -(tonumber(read_if_fit("GET", note) or "") or 0) or 0
  if s.outcome == "ack" then left = left - 1 end
  if left > 0 and s.outcome ~= "dead" and s.outcome ~= "dead_group" then
    redis.call("SET", note, digits(-left), "KEEPTTL")
  else
    redis.call("DEL", note)
  end
  if s.outcome == "ack" or gone == 0 then return 0 end
  redis.call("LPOP", shard.prefix .. ":q:" .. s.group, s.done)
  forget_heads(shard, { s.group })
  redis.call("HSET", shard.prefix .. ":attempts", s.group, "1")
  return gone
end
