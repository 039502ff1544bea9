-- free_of: from when on a rate lets the next message of a group go, in µs, as text; "" when
-- nothing has used the rate lately. The empty group stands for all of the queue.
--@include read_if_fit
local function free_of(shard, group)
  return string.match(read_if_fit("GET", shard.prefix .. ":tat:" .. group) or "", " (%d+)$") or ""
end
