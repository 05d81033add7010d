-- The counts of a message: failures, crashes, defers, releases, the due time that a retry or a defer set (0: that of
-- the record), cycles and redrives. A message has no row before the first of these events, so the usual path from send
-- to ack never writes one.

local FAILURES, CRASHES, DEFERS, RELEASES, DUE, CYCLES, REDRIVES = 1, 2, 3, 4, 5, 6, 7

local function read_counts(stored)
  if not stored or stored == '' then
    return { 0, 0, 0, 0, 0, 0, 0 }
  end
  local counted = cmsgpack.unpack(stored)
  counted[CYCLES], counted[REDRIVES] = counted[CYCLES] or 0, counted[REDRIVES] or 0
  return counted
end

local function counts_of(counts, id)
  return read_counts(redis.call('HGET', counts, id))
end

-- Whether a waiting message was delivered before in its current cycle.
local function was_delivered(counted)
  return counted[FAILURES] + counted[CRASHES] + counted[DEFERS] + counted[RELEASES] > 0
end

local function keep_counts(counts, id, counted)
  redis.call('HSET', counts, id, cmsgpack.pack(counted))
end
