-- Part of audit, for topics: whether a delayed publish has already entered the stream.
-- READS    msgs, stream; now
-- CHANGES  nothing
-- GIVES    search_for_entries(ids); afterwards, for each of them, has_entered(id) and is_search_pending(id)

-- @include lib/delayed_publishes.lua

local search_for_entries, has_entered, is_search_pending
do
  local MOST_ENTRIES, MOST_BYTES, ENTRIES_PER_PAGE = 1000, 4194304, 10

  local entered, is_pending = {}, {} -- by id

  -- The state of one pass over the stream: `times` of the entries read so far, `sizes` summed up to each, and `seen`,
  -- the delayed publishes among them as `sent body`.
  local function begin_walk()
    return { from = '-', first = 1, times = {}, sizes = { [0] = 0 }, largest = 1, page = 1, seen = {} }
  end

  local function note_entry(walk, entry)
    local fields, before = entry[2], walk.sizes[#walk.times]
    local size = size_of_texts(fields)
    for at = 1, #fields, 2 do
      if fields[at] == 'sent' then
        walk.seen[fields[at + 1] .. ' ' .. fields[2]] = true
      end
    end
    walk.times[#walk.times + 1] = tonumber(string.match(entry[1], '^%d+'))
    walk.sizes[#walk.times] = before + size
    walk.from, walk.largest = '(' .. entry[1], math.max(walk.largest, size)
  end

  -- Reads a few entries at a time, because the size of entries that other programs wrote is not known before.
  local function read_on(walk, left, room)
    local count = math.max(math.min(walk.page, left, math.floor(room / walk.largest)), 1)
    local entries = redis.call('XRANGE', keys.stream, walk.from, '+', 'COUNT', count)
    for _, entry in ipairs(entries) do
      note_entry(walk, entry)
    end
    walk.page, walk.is_through = math.min(2 * walk.page, ENTRIES_PER_PAGE), #entries < count
  end

  -- Reads on until an entry that was due at `ms` must have been read. Calls come in the order of `ms`. Returns false if
  -- that is more than one call may read.
  local function walk_to(walk, ms)
    local times, sizes = walk.times, walk.sizes
    while times[walk.first] and times[walk.first] < ms do
      walk.first = walk.first + 1
    end
    if not times[walk.first] then
      walk.from = string.format('%.0f', ms)
    end
    while not walk.is_through do
      local left = MOST_ENTRIES - (#times - walk.first + 1)
      local room = MOST_BYTES - (sizes[#times] - sizes[walk.first - 1])
      if left <= 0 or room <= 0 then
        break
      elseif #times >= MOST_ENTRIES or sizes[#times] >= MOST_BYTES then
        return false
      end
      read_on(walk, left, room)
    end
    return true
  end

  -- Searches the stream for the entries of some publishes. Each delayed publish of a topic has its own `sent`, and
  -- none enters before it is due.
  local function search_for(rows)
    local walk = begin_walk()
    for _, row in ipairs(rows) do
      if not walk_to(walk, row.ms) then
        return
      end
      is_pending[row.id], entered[row.id] = nil, walk.seen[row.entry]
    end
  end

  -- The entry that a publish would have become; nil: it cannot have entered.
  local function entry_of(id)
    local record = redis.call('HGET', keys.msgs, id)
    local fields = fields_if_sound(record)
    if not fields or due_of(record) > now then
      return nil
    end
    local entry = string.format('%.0f', sent_of(record)) .. ' ' .. fields[2]
    return { id = id, ms = math.max(math.floor(due_of(record) / 1000), 0), entry = entry }
  end

  -- Searches for all in one pass, since many are due at about the same time. If that reads too much, searches for the
  -- first one alone, so that every call makes progress.
  function search_for_entries(ids)
    local rows, first = {}, nil
    for _, id in ipairs(ids) do
      local row = entry_of(id)
      if row then
        first = first or row
        rows[#rows + 1], is_pending[id] = row, true
      end
    end
    table.sort(rows, function(one, other)
      return one.ms < other.ms
    end)
    search_for(rows)
    if first and is_pending[first.id] then
      search_for({ first })
    end
  end

  function has_entered(id)
    return entered[id]
  end

  -- Whether the next call has to search for it.
  function is_search_pending(id)
    return is_pending[id]
  end
end
