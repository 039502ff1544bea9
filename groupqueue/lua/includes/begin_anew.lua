-- begin_anew: what becomes of a counter that could not be added to. One that is no number, or too
-- large a one, begins anew; a key of another type is left to whoever can tell what it is, and
-- nothing is counted. Both can only be left by hand.
--@include is_whole_number
--@include other_type
local function begin_anew(key, field, by, refusal)
  if other_type("HINCRBY", key) then return 0 end
  local noted = redis.call("HGET", key, field)
  if not noted or is_whole_number(noted) then error(refusal) end
  redis.call("HSET", key, field, by)
  return tonumber(by)
end
