-- Ids of entries: `milliseconds-number`. Both parts may be larger than a number of Lua can tell apart, so they are
-- compared as texts: the longer is the larger.

local function is_less(one, other)
  if #one ~= #other then
    return #one < #other
  end
  return one < other
end

-- Whether the server takes a text for the id of an entry.
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
