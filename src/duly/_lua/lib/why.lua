-- Why a message is where it is, and what happened to it: { reason, failures, crashes, defers, releases, errors,
-- rejects, timeline, cycles, result, redrives, result_until }. A live message has a row once something went wrong; its
-- reason is empty. `result_until`, mostly absent: the result of a finished message may come until then.
-- An error is { at, attempt, consumer, error, traceback }; an entry of the timeline is
-- { at, what, consumer, since, detail }. The last few of each are kept.

-- @include lib/lease.lua

local ERRORS_KEPT, TIMELINE_KEPT, DETAIL_SIZE = 5, 20, 200

-- What is kept of a message's past: errors and timeline.
local function past_of(why, id)
  local stored = redis.call('HGET', why, id)
  local row = stored and cmsgpack.unpack(stored)
  return { errors = row and row[6] or {}, timeline = row and row[8] or {} }
end

-- The counts of a dead letter that begins anew: only how often it was recycled and redriven is remembered.
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

local function add_error(past, entry)
  with_last(past.errors, entry, ERRORS_KEPT)
end

-- The beginning of a text; a character is not cut in two.
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

-- `lease` is the one that ended, or nil when people did it.
local function add_event(past, at, what, lease, detail)
  local consumer, since = lease and consumer_of(lease) or '', lease and lease.fence or 0
  local entry = { at, what, consumer, since, beginning_of(detail or '') }
  with_last(past.timeline, entry, TIMELINE_KEPT)
end

-- Of a message that lives.
local function keep_past(why, id, past)
  redis.call('HSET', why, id, cmsgpack.pack({ '', 0, 0, 0, 0, past.errors, 0, past.timeline, 0, '', 0 }))
end

-- Of a message that is over.
local function keep_end(why, id, reason, counted, past, result, result_until)
  redis.call('HSET', why, id, cmsgpack.pack({
    reason,
    counted[FAILURES],
    counted[CRASHES],
    counted[DEFERS],
    counted[RELEASES],
    past.errors,
    counted.rejects or 0,
    past.timeline,
    counted[CYCLES],
    result,
    counted[REDRIVES],
    result_until,
  }))
end
