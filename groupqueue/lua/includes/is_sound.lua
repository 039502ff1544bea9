-- is_sound: whether an element begins as a message does: id, published, expiry.
local function is_sound(element)
  return string.find(string.sub(element, 1, 32), "^[%da-f]+$") ~= nil and #element >= 58
    and string.find(string.sub(element, 33, 58), "%D") == nil
end
