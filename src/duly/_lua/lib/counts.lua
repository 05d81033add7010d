-- What went wrong with a message: failures, crashes, defers, releases, the due time that a retry or a defer gave
-- it (0: the record's), how often it was recycled, and how often redriven. Absent until something goes wrong, so that
-- the happy path never writes it.

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

-- Whether a message that waits was handed out before, in this life.
local function has_begun(counted)
  return counted[FAILURES] + counted[CRASHES] + counted[DEFERS] + counted[RELEASES] > 0
end

local function keep_counts(counts, id, counted)
  redis.call('HSET', counts, id, cmsgpack.pack(counted))
end
