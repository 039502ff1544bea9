-- lease_more: let a lease take the messages behind its head as well.
-- Their elements follow in the row; a single empty one says that the head goes alone since
-- it was in flight with others when their worker was last heard of: until as many have
-- ended well, each goes alone, so that a message that takes its worker down is found.
-- Keeps: what has been tried before goes alone; a message that is expired or held ends
-- the batch; the call's bound of bytes holds, and that of messages, `most`.
--@include digits
--@include read_if_fit
--@include is_expired
--@include is_held
--@include note_ms
local PIECE = 16 -- before anything is known of the messages' size

local function lease_more(shard, request, row, most)
  local list, note = shard.prefix .. ":q:" .. row[1], shard.prefix .. ":batch:" .. row[1]
  local together = tonumber(string.match(read_if_fit("GET", note) or "", "^%-?%d+") or "")
  if together then
    -- Negative from here on: this lease has one message, not so many.
    if together > 0 then redis.call("SET", note, digits(-together), "KEEPTTL") end
    row[7] = ""
    return
  end
  if row[3] > 1 then return end
  local taken, bytes, piece, is_open = 1, 0, PIECE, true
  while is_open and taken < most and bytes < shard.may_lease_bytes do
    local upto = math.min(most, taken + piece)
    local found = redis.call("LRANGE", list, digits(taken), digits(upto - 1))
    is_open = #found == upto - taken
    for _, element in ipairs(found) do
      if is_expired(shard, element) or is_held(shard, element) then
        is_open = false
        break
      end
      taken, bytes = taken + 1, bytes + #element
      row[taken + 5] = element
    end
    piece = math.max(1, math.floor((shard.may_lease_bytes - bytes) * taken / (bytes + #row[6])))
  end
  shard.may_lease_bytes = shard.may_lease_bytes - bytes
  if taken > 1 then
    redis.call("SET", note, digits(taken) .. " " .. row[2], "PX", note_ms(request.visibility_ms))
  end
end
