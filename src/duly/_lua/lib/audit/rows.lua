-- Part of audit: whether rows of `leases`, `counts` and `why` can be read. Another program may have written them, and a
-- script that reads a bad row stops half-way. Other scripts trust their rows, because checking costs time.
-- READS    the hash that a call names
-- CHANGES  nothing
-- GIVES    is_text, is_time, is_counts, is_why, is_lease: whether a value can be read; unpacked(stored);
--          sound_counts, sound_why, sound_history: the row of an id if it can be read;
--          is_dead_as(why, id, reason); recounted, has_fewer, merged_counts

-- @include lib/lease.lua
-- @include lib/counts.lua
-- @include lib/history.lua
-- @include lib/text.lua

local is_text, is_time, unpacked, is_counts, is_why, is_lease
local sound_counts, sound_why, sound_history, is_dead_as, recounted, has_fewer, merged_counts
do
  -- Clients decode texts as UTF-8.
  function is_text(value)
    return type(value) == 'string' and as_text(value) == value
  end

  function is_time(text)
    local value = tonumber(text)
    return value and value >= 0 and value < NO_TIME
  end

  local function is_whole(value)
    return type(value) == 'number' and value >= 0 and value < math.huge and value == math.floor(value)
  end

  -- Clients read a row only if it is one short array (at most 15 elements) and nothing more.
  function unpacked(stored)
    local function only_row(is_read, row, ...)
      return is_read and select('#', ...) == 0 and type(row) == 'table' and row or nil
    end
    local head = string.byte(stored)
    return head and head >= 144 and head <= 159 and only_row(pcall(cmsgpack.unpack, stored)) or nil
  end

  local function are_whole(row, first, last)
    for i = first, last do
      if not is_whole(row[i]) then
        return false
      end
    end
    return true
  end

  function is_counts(stored)
    local row = unpacked(stored)
    return row and are_whole(row, FAILURES, DUE) and is_whole(row[CYCLES] or 0) and is_whole(row[REDRIVES] or 0)
  end

  -- Whether `entries` is a list of rows whose columns have these types: n is a number, s is a text.
  local function are_rows(entries, types)
    if type(entries) ~= 'table' then
      return false
    end
    for _, entry in pairs(entries) do
      for i = 1, #types do
        local value, wanted = type(entry) == 'table' and entry[i], string.sub(types, i, i)
        if not (wanted == 'n' and type(value) == 'number' or wanted == 's' and is_text(value)) then
          return false
        end
      end
    end
    return true
  end

  function is_why(stored)
    local row = unpacked(stored)
    if not row or not is_text(row[1]) or not are_whole(row, 2, 5) then
      return false
    end
    local are_numbers = is_whole(row[7] or 0) and is_whole(row[9] or 0) and is_whole(row[11] or 0)
    return are_numbers and is_text(row[10] or '') and are_rows(row[6], 'nnsss') and are_rows(row[8], 'nssns')
  end

  function is_lease(text)
    if #text < LEASE_HEAD_SIZE then
      return false
    end
    local fence, _, flags, priority, at = struct.unpack(LEASE_FORMAT, text)
    local has_room = #text >= at + 1 and #text >= at + 1 + struct.unpack('<H', text, at)
    return is_finite(fence) and priority <= 9 and (has_room or not has(flags, FLAG_KEY))
  end

  -- The row of `counts`; zeros if it is missing or cannot be read.
  function sound_counts(counts, id)
    local stored = redis.call('HGET', counts, id)
    return read_counts(stored and is_counts(stored) and stored)
  end

  -- The row of `why`; nil if it is missing or cannot be read.
  function sound_why(why, id)
    local stored = redis.call('HGET', why, id)
    return stored and is_why(stored) and unpacked(stored) or nil
  end

  function is_dead_as(why, id, reason)
    local row = sound_why(why, id)
    return row and row[1] == reason
  end

  function sound_history(why, id)
    local row = sound_why(why, id)
    return { errors = row and row[6] or {}, timeline = row and row[8] or {} }
  end

  local COUNTED_BY_EVENT = { retry = FAILURES, crash = CRASHES, defer = DEFERS, release = RELEASES }

  -- Counts the events of a timeline since the last redrive. It keeps only the last events, so this is a minimum.
  function recounted(timeline)
    local counted = read_counts(nil)
    for _, event in ipairs(timeline) do
      local at = COUNTED_BY_EVENT[event[2]]
      if at then
        counted[at] = counted[at] + 1
      elseif event[2] == 'redrive' then
        counted = { 0, 0, 0, 0, 0, 0, counted[REDRIVES] + 1 }
      end
    end
    return counted
  end

  -- Whether one row of `counts` has fewer failures, crashes, defers or releases than another.
  function has_fewer(counted, other)
    for i = FAILURES, RELEASES do
      if counted[i] < other[i] then
        return true
      end
    end
    return false
  end

  -- The larger number of two rows of `counts`, column by column. Changes the first.
  function merged_counts(counted, other)
    for i = FAILURES, REDRIVES do
      counted[i] = math.max(counted[i], other[i])
    end
    return counted
  end
end
