-- The hash `why` has the history of messages: { reason, failures, crashes, defers, releases, errors, rejects, timeline,
-- cycles, result, redrives, result_until }. A live message has a row, with an empty reason, after a delivery that did
-- not end in an ack. `result_until`, mostly absent, is until when the result of a finished message may be stored. An
-- error is { at, attempt, consumer, error, traceback }. An event of the timeline is { at, what, consumer, since, detail
-- }. Only the last errors and events are kept.

-- @include lib/lease.lua

local ERRORS_KEPT, TIMELINE_KEPT, DETAIL_SIZE = 5, 20, 200

-- Returns the errors and the timeline of a message.
local function history_of(why, id)
  local stored = redis.call('HGET', why, id)
  local row = stored and cmsgpack.unpack(stored)
  return { errors = row and row[6] or {}, timeline = row and row[8] or {} }
end

-- Returns the counts of a dead letter after a redrive: all are reset, except cycles and redrives.
local function counts_of_redriven(why, id)
  local stored = redis.call('HGET', why, id)
  local row = stored and cmsgpack.unpack(stored) or {}
  return { 0, 0, 0, 0, 0, row[9] or 0, (row[11] or 0) + 1 }
end

local function with_last(entries, entry, most)
  entries[#entries + 1] = entry
  while #entries > most do
    table.remove(entries, 1)
  end
end

local function add_error(history, entry)
  with_last(history.errors, entry, ERRORS_KEPT)
end

-- Returns the beginning of a text, cut between two characters.
local function beginning_of(text)
  local last = DETAIL_SIZE
  if #text <= last then
    return text
  end
  while last > 0 and bit.band(string.byte(text, last + 1), 192) == 128 do
    last = last - 1
  end
  return string.sub(text, 1, last)
end

-- `lease` is the lease that ended; nil: a call from outside caused the event.
local function add_event(history, at, what, lease, detail)
  local consumer, since = lease and consumer_of(lease) or '', lease and lease.fence or 0
  local entry = { at, what, consumer, since, beginning_of(detail or '') }
  with_last(history.timeline, entry, TIMELINE_KEPT)
end

-- Stores the history of a live message: errors and timeline.
local function keep_history(why, id, history)
  redis.call('HSET', why, id, cmsgpack.pack({ '', 0, 0, 0, 0, history.errors, 0, history.timeline, 0, '', 0 }))
end

-- Stores all columns: for a dead or finished message, or a live one with progress. Returns the bytes of the row.
local function keep_full_history(why, id, reason, counted, history, result, result_until)
  local row = cmsgpack.pack({
    reason,
    counted[FAILURES],
    counted[CRASHES],
    counted[DEFERS],
    counted[RELEASES],
    history.errors,
    counted.rejects or 0,
    history.timeline,
    counted[CYCLES],
    result,
    counted[REDRIVES],
    result_until,
  })
  redis.call('HSET', why, id, row)
  return #row
end
