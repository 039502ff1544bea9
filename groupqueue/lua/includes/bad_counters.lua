-- bad_counters: the counters of a hash that are no counts, as {name, value}.
--@include is_whole_number
--@include fields_of
local function bad_counters(key)
  local bad = {}
  for counter, value in pairs(fields_of(key)) do
    if not is_whole_number(value) or string.sub(value, 1, 1) == "-" then
      table.insert(bad, { counter, value })
    end
  end
  return bad
end
