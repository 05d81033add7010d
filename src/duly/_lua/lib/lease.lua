-- The lease that is out: fence, size of the record, flags, priority, the key if it has one, then the consumer's name.
-- It repeats what a settle must know of the record, so that an ack never reads a body.

-- @include lib/record.lua

-- @include lib/lease_text.lua

local function read_lease(lease)
  local fence, size, flags, priority, at = struct.unpack(LEASE_FORMAT, lease)
  local key
  if has(flags, FLAG_KEY) then
    key, at = struct.unpack('<Hc0', lease, at)
  end
  return { fence = fence, size = size, flags = flags, priority = priority, key = key, text = lease, rest_at = at }
end

-- Who holds a lease. Not read with the rest: an ack does not ask.
local function consumer_of(lease)
  return (string.match(lease.text, '^(.-) *$', lease.rest_at))
end
