-- Part of claim: the reply to a repeated call. It has the same messages with the same fence, except those that were
-- settled or lost since. Reads the store, and changes nothing.

-- @include lib/lease.lua

local function repeated_reply(now, fence, ids)
  local given, records, counts = {}, {}, {}
  for _, id in ipairs(ids) do
    local lease = redis.call('HGET', LEASES, id)
    local record = lease and read_lease(lease).fence == fence and redis.call('HGET', MSGS, id)
    if record then
      given[#given + 1] = id
      records[#records + 1] = record
      counts[#counts + 1] = redis.call('HGET', COUNTS, id) or ''
    end
  end
  return { OPEN, now, 0, fence, given, records, counts, {}, {} }
end
