-- Part of claim, for groups: entries that are read and not delivered, because of a filter, a lane or a seek.
-- Reads claim.now. Adds to claim.parked, and sets claim.has_acked.

-- @include lib/lease.lua
-- @include lib/row_bytes.lua

-- The filter: by header, its values, of which an entry must have one.
local wanted_values = {}
for at = filter.first, filter.last, filter.stride do
  local name = filter.header(at)
  wanted_values[name] = wanted_values[name] or {}
  wanted_values[name][filter.value(at)] = true
end

-- Whether an entry matches the filter. If it has a header twice, the last one counts, as in its record.
local function is_match(entry)
  local found, fields = {}, entry[2]
  for at = 1, #fields, 2 do
    local name = header_of(fields[at])
    if name and wanted_values[name] then
      found[name] = wanted_values[name][as_text(fields[at + 1])]
    end
  end
  for name in pairs(wanted_values) do
    if not found[name] then
      return false
    end
  end
  return true
end

-- For entries that are read again after the group's position was moved back. Live ones stay where they are in the
-- group's store. Dead ones start over, if they match the filter. Returns those dead ones and all new entries.
local function entries_to_store(claim, entries)
  local fresh = {}
  for _, entry in ipairs(entries) do
    local id = entry[1]
    local is_dead = redis.call('ZSCORE', DEAD, id)
    local holder = redis.call('HGET', LEASES, id)
    if is_dead and is_match(entry) then
      add_row_bytes(keys, 'dead', 0 - redis.call('HSTRLEN', WHY, id))
      redis.call('ZREM', DEAD, id)
      redis.call('HINCRBY', META, 'dead_bytes', 0 - redis.call('HSTRLEN', MSGS, id))
      redis.call('HINCRBY', META, 'redriven', 1)
      redis.call('HINCRBY', META, 'sent', -1) -- it is counted again later, like a new entry
      redis.call('HDEL', WHY, id)
      fresh[#fresh + 1] = entry
    elseif holder then
      redis.call('XCLAIM', STREAM, GROUP, consumer_of(read_lease(holder)), 0, id, 'JUSTID')
    elseif redis.call('HEXISTS', MSGS, id) == 1 then
      ack(claim, { id })
    else
      fresh[#fresh + 1] = entry
    end
  end
  store_row_bytes(keys)
  return fresh
end

-- Returns the entries that match the filter. The group acks the others and does not store them.
local function matching_entries(claim, entries)
  local matching, passed = {}, {}
  for _, entry in ipairs(entries) do
    if is_match(entry) then
      matching[#matching + 1] = entry
    else
      passed[#passed + 1] = entry[1]
    end
  end
  if #passed > 0 then
    ack(claim, passed)
    redis.call('HINCRBY', META, 'filtered', #passed)
  end
  return matching
end

-- Parks those of the stored entries whose turn it is not in their lanes. Returns the keys by position, true for those.
local function entries_in_turn(claim, ids, records)
  local lanes, _, ids_parked = in_turn(claim, WAITING[0], ids, records, #ids)
  if #ids_parked > 0 then
    ack(claim, ids_parked) -- they are in the group's store, and no consumer holds them
  end
  return lanes
end
