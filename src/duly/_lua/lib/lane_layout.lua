-- The layout of `lanes` and `parked`: see lib/lanes.lua.

-- @include lib/record_layout.lua

local LANES_GUARD_FIELD, LANES_GUARD = '', string.rep('\1', 65) -- no key is empty
local NONE_PARKED, SOME_PARKED, NONE_PARKED_BYTE = '-', '+', 45
-- Long enough that no member fits into the compact encoding of a sorted set, in which every lookup is a linear search.
local DUE_DIGITS = 64
local LAST_DIGITS, LEADING_ZEROS = 16, string.rep('0', 48) -- formatting all 64 digits takes longer
local NO_TIME = 9007199254740992 -- microseconds, in the year 2255

-- Returns the member of `parked` for a message: its key, then the order within the lane. Keys have no control
-- characters.
local function member_of(key, priority, due, id)
  if not (due >= 0 and due < NO_TIME) then
    due = 0 -- another program wrote it: the member must have its digits even so
  end
  return key .. '\0' .. 9 - priority .. LEADING_ZEROS .. string.format('%016.0f', due) .. id
end

local function parked_member(key, record, id)
  return member_of(key, string.byte(record, PRIORITY_AT), (struct.unpack('<d', record, DUE_AT)), id)
end
