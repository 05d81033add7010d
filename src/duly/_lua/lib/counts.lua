-- What went wrong with a message: failures, crashes, defers, releases, and the due time that a retry
-- or a defer gave it (0: the record's). Absent until something goes wrong, so that the happy path
-- never writes it.

local FAILURES, CRASHES, DEFERS, RELEASES, DUE = 1, 2, 3, 4, 5

local function read_counts(stored)
  if not stored or stored == '' then
    return { 0, 0, 0, 0, 0 }
  end
  return cmsgpack.unpack(stored)
end

local function counts_of(counts, id)
  return read_counts(redis.call('HGET', counts, id))
end
