-- The lease that is out: fence, size of the record, flags, priority, the key if it has one, then the consumer's name.
-- It repeats what a settle must know of the record, so that an ack never reads a body.

-- @include lib/record.lua

local FLAG_TROUBLED = 128 -- in a lease: the message has a row in `counts` or `why`
local LEASE_FORMAT = '<dI4BB'
local LEASE_TEXT_SIZE = 65

-- Padded, see lib/leased.lua. With `key` it says which lane to hand on.
local function written_lease(fence, size, flags, priority, consumer, key)
  local text = struct.pack(LEASE_FORMAT, fence, size, flags, priority)
  if key then
    text = text .. struct.pack('<Hc0', #key, key)
  end
  text = text .. consumer
  return text .. string.rep(' ', LEASE_TEXT_SIZE - #text)
end

local function read_lease(lease)
  local fence, size, flags, priority, at = struct.unpack(LEASE_FORMAT, lease)
  local key
  if has(flags, FLAG_KEY) then
    key, at = struct.unpack('<Hc0', lease, at)
  end
  local consumer = string.match(lease, '^(.-) *$', at)
  return { fence = fence, size = size, flags = flags, priority = priority, consumer = consumer, key = key }
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
