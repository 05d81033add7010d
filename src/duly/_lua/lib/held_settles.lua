-- Finds out which settles of a call hold their lease, and makes a table of each. lib/held_batch.lua is for many.

-- @include lib/lease.lua

-- Returns the settles that hold their lease, as { at = position of the row in ARGV, id, lease }, and the positions (1,
-- 2 ...) of those that lost it. A lease whose deadline has passed is valid until a claim reclaims the message. An id
-- given twice is settled once (I5).
local function held_settles(leases)
  local ids, held, lost, seen = {}, {}, {}, {}
  for at = settles.first, settles.last, settles.stride do
    ids[#ids + 1] = settles.id(at)
  end
  local stored = redis.call('HMGET', leases, unpack(ids))
  for position, id in ipairs(ids) do
    local at = settles.first + (position - 1) * settles.stride
    local lease = stored[position] and not seen[id] and read_lease(stored[position])
    if lease and lease.fence == tonumber(settles.fence(at)) then
      held[#held + 1] = { at = at, id = id, lease = lease }
      seen[id] = true
    else
      lost[#lost + 1] = position
    end
  end
  return held, lost
end
