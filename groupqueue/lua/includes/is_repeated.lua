-- is_repeated: tell a repeated or late call from a new one. Each publisher numbers its
-- calls, and has one under way at a time. An operator's call is the first and last under
-- a name of its own.
--@include read
local function is_repeated(shard, publisher, sequence)
  local last = read("GET", shard.prefix .. ":publisher:" .. publisher)
  return last and (tonumber(last) or 0) >= tonumber(sequence)
end
