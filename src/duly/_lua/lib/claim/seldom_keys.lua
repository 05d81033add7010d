-- Part of claim: keys of messages that also have a ttl, a dedup value or an id of the caller. Changes nothing.

-- @include lib/record.lua
-- @include lib/lanes.lua

-- Returns the key of a message that may be delivered if it is its turn; false: it has no key, is flawed or has expired.
local function lane_of(now, record)
  if not has(flags_of(record), FLAG_KEY) or flaw_of(record) then
    return false
  end
  return not (has(flags_of(record), FLAG_TTL) and expiry_of(record) <= now) and key_of(record)
end
