-- Part of claim, for groups: which of the entries that were read are handed out, in cases that are seldom.

-- What the filter asks for: by header, the values of which one must be there.
local wanted_values = {}
for at = filter.first, filter.last, filter.stride do
  local name = filter.header(at)
  wanted_values[name] = wanted_values[name] or {}
  wanted_values[name][filter.value(at)] = true
end

-- Whether an entry has what the filter asks for, in the headers that its record has: of a name twice, the last counts.
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

-- Entries that are read again, after the group's position was moved back: those that live in its store are where
-- they belong, and dead ones begin anew, unless a filter has been changed since. Returns the others, and those.
local function without_known(entries)
  local fresh = {}
  for _, entry in ipairs(entries) do
    local id = entry[1]
    local is_dead = redis.call('ZSCORE', DEAD, id)
    local holder = redis.call('HGET', LEASES, id)
    if is_dead and is_match(entry) then
      redis.call('ZREM', DEAD, id)
      redis.call('HINCRBY', META, 'dead_bytes', 0 - redis.call('HSTRLEN', MSGS, id))
      redis.call('HINCRBY', META, 'redriven', 1)
      redis.call('HINCRBY', META, 'sent', -1) -- it is counted below as if it came for the first time
      redis.call('HDEL', WHY, id)
      fresh[#fresh + 1] = entry
    elseif holder then
      redis.call('XCLAIM', STREAM, GROUP, consumer_of(read_lease(holder)), 0, id, 'JUSTID')
    elseif redis.call('HEXISTS', MSGS, id) == 1 then
      ack_in_stream(GROUP, { id })
      claim.has_acked = true
    else
      fresh[#fresh + 1] = entry
    end
  end
  return fresh
end

-- Those of `entries` that have what the filter asks for. The others are acked: they are nothing to this group.
local function that_match(entries)
  local matching, passed = {}, {}
  for _, entry in ipairs(entries) do
    if is_match(entry) then
      matching[#matching + 1] = entry
    else
      passed[#passed + 1] = entry[1]
    end
  end
  if #passed > 0 then
    ack_in_stream(GROUP, passed)
    claim.has_acked = true
    redis.call('HINCRBY', META, 'filtered', #passed)
  end
  return matching
end

-- Of entries that were just read and stored, those whose turn it is in their lanes; the others are parked.
local function entries_in_turn(new_ids, new_records)
  local chosen, chosen_records, lanes = in_turn(keys.waiting[0], new_ids, new_records, #new_ids)
  if #chosen < #new_ids then
    local is_chosen, others = {}, {}
    for _, id in ipairs(chosen) do
      is_chosen[id] = true
    end
    for _, id in ipairs(new_ids) do
      if not is_chosen[id] then
        others[#others + 1] = id
      end
    end
    ack_in_stream(GROUP, others) -- they wait in our store, and nobody holds them
    claim.has_acked = true
  end
  return chosen, chosen_records, lanes
end
