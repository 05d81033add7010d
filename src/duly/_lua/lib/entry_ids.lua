-- Ids of entries: `milliseconds-number`. Both parts may be too large for an exact number of Lua, so they are compared
-- as texts: the longer text is the larger number.

local function is_less(one, other)
  if #one ~= #other then
    return #one < #other
  end
  return one < other
end

-- Whether the server accepts a text as the id of an entry.
local LARGEST_PART = '18446744073709551615'
local function is_entry_id(text)
  local ms, number = string.match(text, '^(%d+)-(%d+)$')
  return ms and not is_less(LARGEST_PART, ms) and not is_less(LARGEST_PART, number)
end

local function is_before(one, other)
  local ms, number = string.match(one, '^(%d+)-(%d+)$')
  local other_ms, other_number = string.match(other, '^(%d+)-(%d+)$')
  if ms == other_ms then
    return is_less(number, other_number)
  end
  return is_less(ms, other_ms)
end
