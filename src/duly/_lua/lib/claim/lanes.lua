-- Part of claim: the order within a key (decision 15). A message whose turn it is takes its lane, and the others are
-- parked behind it. Reads claim.now. Adds to claim.parked.

-- @include lib/record.lua
-- @include lib/lanes.lua

local byte, sub = string.byte, string.sub

-- Returns the key of a message that may be delivered if it is its turn; false: it has no key, is flawed or has expired.
local function lane_of(now, record)
  local flags, priority, low, high = byte(record or '', FLAGS_AT, OPTIONS_AT + 1)
  if flags == FLAG_KEY and high then -- a shortcut for most messages
    local last = OPTIONS_AT + 1 + low + 256 * high
    return last <= #record and priority <= 9 and sub(record, OPTIONS_AT + 2, last)
  end
  if not flags or not has(flags, FLAG_KEY) or flaw_of(record) then
    return false
  end
  return not (has(flags, FLAG_TTL) and expiry_of(record) <= now) and key_of(record)
end

-- Returns the keys of the records `found` by position, false for none, and the stored owner of each lane.
local function lanes_of(now, found)
  local lanes, asked, owner = {}, {}, {}
  for i, record in ipairs(found) do
    local key = lane_of(now, record)
    lanes[i] = key
    if key then
      asked[#asked + 1] = key
    end
  end
  local stored = #asked > 0 and redis.call('HMGET', LANES, unpack(asked))
  for i, key in ipairs(asked) do
    owner[key] = stored[i] or nil
  end
  return lanes, owner
end

-- Returns up to `wanted` of the due messages whose turn it is in their lanes, with their records and keys. They own
-- their lanes from now on. The others before them are parked.
local function in_turn(claim, waiting, candidates, found, wanted)
  local lanes, owner = lanes_of(claim.now, found)
  local chosen, chosen_records, chosen_lanes, members, ids_parked, rows = {}, {}, {}, {}, {}, {}
  local n, r = 0, 0
  for i, id in ipairs(candidates) do
    if n == wanted then
      break
    end
    local key = lanes[i]
    local held_by, new_owner = key and owner[key]
    if not held_by or sub(held_by, 2) == id then
      new_owner = key and not held_by and NONE_PARKED .. id
      n = n + 1
      chosen[n], chosen_records[n], chosen_lanes[n] = id, found[i], key
    else
      new_owner = byte(held_by) == NONE_PARKED_BYTE and SOME_PARKED .. sub(held_by, 2)
      members[#members + 1] = 0
      members[#members + 1] = parked_member(key, found[i], id)
      ids_parked[#ids_parked + 1] = id
    end
    if new_owner then
      owner[key], rows[r + 1], rows[r + 2] = new_owner, key, new_owner
      r = r + 2
    end
  end
  if #ids_parked > 0 then
    redis.call('ZADD', PARKED, unpack(members))
    redis.call('ZREM', waiting, unpack(ids_parked))
    claim.parked = claim.parked + #ids_parked
  end
  if r > 0 then
    redis.call('HSET', LANES, LANES_GUARD_FIELD, LANES_GUARD, unpack(rows))
  end
  return chosen, chosen_records, chosen_lanes
end

-- For a message with a key in a queue without the field `keyed`, because `meta` was lost or an older version stored the
-- message. Returns its lane, and whether it is parked.
local function in_its_turn(claim, waiting, id, record)
  redis.call('HSET', META, 'keyed', 1)
  local chosen, _, lanes = in_turn(claim, waiting, { id }, { record }, 1)
  return lanes[1], #chosen == 0
end
