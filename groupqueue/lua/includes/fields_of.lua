-- fields_of: a hash of few fields, all of it, as a table.
local function fields_of(key)
  local found, fields = redis.call("HGETALL", key), {}
  for index = 1, #found, 2 do fields[found[index]] = found[index + 1] end
  return fields
end
