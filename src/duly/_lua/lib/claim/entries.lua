-- Part of claim, for groups: reads on in the stream. Each entry becomes a record in the group's store and is leased in
-- the same step. Reads claim.now, deadline, allowed, any_counts and has_large. Adds to claim.ids, records, counts,
-- leased, leases, bytes and lateness. Sets claim.clock and is_full.

-- @include lib/claim/entry_sizes.lua

local READ_PER_CALL, ASKED_UNMEASURED = 1000, 10

-- Reads the next entries under the consumer's name. `fed` is the last one that the group has read, or false.
local function read_entries(count, fed)
  local reply = redis.pcall('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', count, 'STREAMS', STREAM, '>')
  if reply and reply.err then
    if string.find(reply.err, 'NOGROUP', 1, true) then
      make_group(fed)
    end
    reply = redis.call('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', count, 'STREAMS', STREAM, '>')
  end
  return reply and reply[1][2] or {}
end

-- Stores entries as records, each with its own tick, so that the group has the order of the stream. Returns ids,
-- records, their bytes, those of the largest, and whether any has a key.
local function store_entries(claim, entries)
  local ids, records, rows, size, largest, any_key = {}, {}, {}, 0, 0, false
  local record_of_entry, clock = record_of, claim.clock
  for i = 1, #entries do
    local entry = entries[i]
    local id = entry[1]
    clock = clock + 1
    local record, key = record_of_entry(id, entry[2], clock)
    ids[i], records[i] = id, record
    rows[2 * i - 1], rows[2 * i] = id, record
    local length = #record
    size, any_key = size + length, any_key or key
    if length > largest then
      largest = length
    end
  end
  claim.clock = clock
  redis.call('HSET', MSGS, unpack(rows))
  return ids, records, size, largest, any_key
end

-- Stores entries, and leases those whose turn it is. `largest` is the size of the topic's largest known entry. Returns
-- the new one.
local function take_entries(claim, entries, fed, largest)
  if fed and not is_before(fed, entries[1][1]) then
    entries = entries_to_store(claim, entries)
  end
  if filter.first <= filter.last and #entries > 0 then
    entries = matching_entries(claim, entries)
  end
  if #entries == 0 then
    return largest
  end
  local stored, found, size, most, any_key = store_entries(claim, entries)
  largest = math.max(largest, most)
  if largest > LARGE and not claim.has_large then
    redis.call('HSET', META, 'large', 1)
  end
  local lanes
  if any_key then
    redis.call('HSET', META, 'keyed', 1)
    lanes = entries_in_turn(claim, stored, found)
  end
  local ids, records, leased, leases = claim.ids, claim.records, claim.leased, claim.leases
  local n, deadline = #ids, claim.deadline
  for i = 1, #stored do
    local id, record, key = stored[i], found[i], lanes and lanes[i]
    if key ~= true then
      n = n + 1
      ids[n], records[n] = id, record
      if claim.any_counts then
        claim.counts[n] = ''
      end
      leased[2 * n - 1], leased[2 * n] = deadline, id
      leases[2 * n - 1], leases[2 * n] = id, lease_text(claim, #record, key and FLAG_KEY or 0, 0, key)
    end
  end
  claim.bytes = claim.bytes + size
  claim.lateness = math.max(claim.lateness, claim.now - sent_by(entries[1][1]))
  redis.call('HINCRBY', META, 'sent', #entries)
  redis.call('HINCRBY', META, 'bytes', size)
  return largest
end

-- Reads until there is enough.
local function read_on(claim, fed)
  local largest_before = tonumber(redis.call('HGET', TOPIC_META, 'largest') or 0)
  local largest, expected, looked_at, seen = largest_before, 0, 0, 0
  if largest <= LARGE and claim.allowed - #claim.ids > ASKED_UNMEASURED then
    expected = average_size()
  end
  claim.clock = claim.now
  repeat
    local count = entries_to_ask_for(claim, math.max(largest, expected), seen)
    local entries = read_entries(count, fed)
    local last, is_at_end = entries[#entries], #entries < count
    if last then
      redis.call('HSET', META, 'fed', fed and is_before(last[1], fed) and fed or last[1])
      largest = take_entries(claim, entries, fed, largest)
    end
    looked_at, seen = looked_at + #entries, seen + (math.max(largest, expected) > LARGE and size_of(entries) or 0)
    -- If the bounds of a call end the loop, the reply asks for another claim, because more entries may follow.
    local is_enough = looked_at >= READ_PER_CALL or math.max(claim.bytes, seen) >= BYTES_PER_CALL
    claim.is_full = not is_at_end and #claim.ids < claim.allowed and is_enough
  until is_at_end or claim.is_full or #claim.ids >= claim.allowed
  if largest > largest_before then
    redis.call('HSET', TOPIC_META, 'largest', largest)
  end
end
