-- window_of: the heads (58 bytes) of a group's first messages, and whether they are all of it.
-- A thousand at most, and what `shard.may_read` and `shard.may_read_bytes` allow; those that are
-- read count there. A group read once in a call is not read again.
--@include digits
--@include read_if_fit
local MOST_IN_WINDOW, FIRST_READ = 1000, 16

local function window_of(shard, group)
  shard.windows = shard.windows or {}
  local known = shard.windows[group]
  if known then return known.heads, known.is_whole end
  local list, heads, piece, bytes = shard.prefix .. ":q:" .. group, {}, FIRST_READ, 0
  local depth = read_if_fit("LLEN", list) or 0
  local upto = math.min(depth, MOST_IN_WINDOW)
  while #heads < upto and bytes < shard.may_read_bytes do
    local from = #heads
    local found = redis.call("LRANGE", list, digits(from), digits(math.min(upto, from + piece) - 1))
    for _, element in ipairs(found) do
      heads[#heads + 1] = string.sub(element, 1, 58)
      bytes = bytes + #element
    end
    piece = math.max(1, math.floor((shard.may_read_bytes - bytes) * #heads / math.max(1, bytes)))
  end
  shard.may_read, shard.may_read_bytes = shard.may_read - math.max(1, #heads), shard.may_read_bytes - bytes
  shard.windows[group] = { heads = heads, is_whole = #heads == depth }
  return heads, #heads == depth
end
