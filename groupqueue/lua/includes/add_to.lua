-- add_to: add to a counter in a hash; returns what it is then. Scripts count when they have
-- written already, and must not end there: see begin_anew for what is no counter.
--@lazy begin_anew
local function add_to(key, field, by)
  local now = redis.pcall("HINCRBY", key, field, by)
  if type(now) ~= "table" then return now end
  return begin_anew(key, field, by, now)
end
