-- Part of claim, for groups: the way from the stream into the group's store, and into the hands of the caller.

-- @include lib/position.lua

-- Where a group begins that the stream does not know: where the caller says. One that somebody has removed does not
-- begin behind entries that it never had: it goes on where it was, and in a stream that is new as well, with the first.
local function beginning()
  if start ~= '$' or not known[1] then
    return within_stream(STREAM, start)
  end
  return is_before(last_id(STREAM), known[1]) and '0' or known[1]
end

-- The next entries, read under the consumer's name.
local function read_entries(count)
  local reply = redis.pcall('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', count, 'STREAMS', STREAM, '>')
  if reply and reply.err then
    if string.find(reply.err, 'NOGROUP', 1, true) then
      redis.call('XGROUP', 'CREATE', STREAM, GROUP, beginning(), 'MKSTREAM')
      redis.call('HSET', TOPIC_META, 'group:' .. GROUP, 1)
    end
    reply = redis.call('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', count, 'STREAMS', STREAM, '>')
  end
  return reply and reply[1][2] or {}
end

-- How many entries to ask for: large ones are read few at a time, since nobody knows their size before. What another
-- program added nobody has measured: there the average says what to expect, and many are never asked for at once.
local largest = tonumber(redis.call('HGET', TOPIC_META, 'largest') or 0)
local expected, seen = largest, 0 -- bytes of the entries that were looked at, of large ones
local function expect_by_average()
  local length = redis.call('XLEN', STREAM)
  expected = length > 0 and math.max(largest, redis.call('MEMORY', 'USAGE', STREAM) / length) or largest
end

local function entries_to_ask_for()
  local wanted, size = math.min(allowed - #ids, READ_AT_ONCE), math.max(largest, expected)
  if size <= LARGE then
    return wanted
  end
  return math.min(wanted, math.max(math.floor((BYTES_A_CALL - math.max(bytes, seen)) / size), 1))
end

-- The bytes of entries, of large ones only: a thousand others fit.
local function size_of(entries)
  local size = 0
  for i = 1, math.max(largest, expected) > LARGE and #entries or 0 do
    for _, text in ipairs(entries[i][2]) do
      size = size + #text
    end
  end
  return size
end

-- Stores entries, and leases those whose turn it is.
local function take_entries(entries)
  if known[1] and not is_before(known[1], entries[1][1]) then
    entries = seldom().without_known(entries)
  end
  if filter.first <= filter.last and #entries > 0 then
    entries = seldom().that_match(entries)
  end
  if #entries == 0 then
    return
  end
  local new_ids, new_records, rows, size, any_key = {}, {}, {}, 0, false
  local record_of_entry, most = record_of, largest
  for i = 1, #entries do
    local entry = entries[i]
    local id = entry[1]
    clock = clock + 1
    local record, key = record_of_entry(id, entry[2], clock)
    new_ids[i], new_records[i] = id, record
    rows[2 * i - 1], rows[2 * i] = id, record
    local length = #record
    size, any_key = size + length, any_key or key
    if length > most then
      most = length
    end
  end
  largest = most
  redis.call('HSET', MSGS, unpack(rows))
  if largest > LARGE and not meta[4] then
    redis.call('HSET', META, 'large', 1)
  end
  local chosen, lanes = new_ids, nil
  if any_key then
    redis.call('HSET', META, 'keyed', 1)
    chosen, new_records, lanes = seldom().entries_in_turn(new_ids, new_records)
  end
  local n, text_of, flag = #ids, lease_text, FLAG_KEY
  for i = 1, #chosen do
    n = n + 1
    local id, record, key = chosen[i], new_records[i], lanes and lanes[i]
    ids[n], records[n] = id, record
    if any_counts then
      counted[n] = ''
    end
    leased[2 * n - 1], leased[2 * n] = deadline, id
    leases[2 * n - 1], leases[2 * n] = id, text_of(#record, key and flag or 0, 0, key)
  end
  bytes = bytes + size
  lateness = math.max(lateness, now - sent_by(entries[1][1]))
  redis.call('HINCRBY', META, 'sent', #entries)
  redis.call('HINCRBY', META, 'bytes', size)
end

if not is_paused and #ids < allowed and not is_full then
  local looked_at, largest_before = 0, largest
  if largest <= LARGE and allowed - #ids > ASKED_UNMEASURED then
    expect_by_average()
  end
  repeat
    local count = entries_to_ask_for()
    local entries = read_entries(count)
    local last, is_at_end = entries[#entries], #entries < count
    if last then
      redis.call('HSET', META, 'fed', known[1] and is_before(last[1], known[1]) and known[1] or last[1])
      take_entries(entries)
    end
    looked_at, seen = looked_at + #entries, seen + size_of(entries)
    -- Of what is left, and was not looked at, the answer says that there may be more.
    is_full = not is_at_end and #ids < allowed and (looked_at >= READ_A_CALL or math.max(bytes, seen) >= BYTES_A_CALL)
  until is_at_end or is_full or #ids >= allowed
  if largest > largest_before then
    redis.call('HSET', TOPIC_META, 'largest', largest)
  end
end
if #again > 0 then
  again[#again + 1] = 'FORCE'
  again[#again + 1] = 'JUSTID'
  redis.pcall('XCLAIM', STREAM, GROUP, consumer, 0, unpack(again)) -- without those that the stream has no more
end
