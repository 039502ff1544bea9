-- is_given_up: tell a turn whose worker has stopped waiting for it, and has handed back
-- whatever it may have claimed: it has come late, and nobody would know of its leases.
--@include read
local function is_given_up(shard, worker, number)
  if number == "0" then return false end
  local upto = read("GET", shard.prefix .. ":turn:" .. worker)
  return upto and tonumber(number) <= (tonumber(upto) or 0)
end
