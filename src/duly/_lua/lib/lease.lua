-- A stored lease: fence, size of the record, flags, priority, the key if the message has one, and the consumer's name.
-- It copies the fields of the record that a settle needs, so that an ack never reads a body.

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

-- Returns the name of the holder. `read_lease` does not read it, because an ack does not need it.
local function consumer_of(lease)
  return (string.match(lease.text, '^(.-) *$', lease.rest_at))
end
