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

-- Sorts the settles of one call, given as `id, fence, ...` from ARGV[first] in steps of `stride`:
-- those that hold their lease, as { at = position of the id in ARGV, id, lease }, and the positions
-- (1, 2 ...) of those that lost it. A lease whose deadline has passed holds until somebody takes the
-- message over. An id given twice is settled once (I5).
local function sorted_by_holding(leases, first, stride)
  local ids, held, lost, seen = {}, {}, {}, {}
  for at = first, #ARGV, stride do
    ids[#ids + 1] = ARGV[at]
  end
  local stored = redis.call('HMGET', leases, unpack(ids))
  for position, id in ipairs(ids) do
    local at = first + (position - 1) * stride
    local lease = stored[position] and not seen[id] and read_lease(stored[position])
    if lease and lease.fence == tonumber(ARGV[at + 1]) then
      held[#held + 1] = { at = at, id = id, lease = lease }
      seen[id] = true
    else
      lost[#lost + 1] = position
    end
  end
  return held, lost
end
