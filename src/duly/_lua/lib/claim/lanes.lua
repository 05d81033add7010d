-- Part of claim: the order within a key (decision 15). A message whose turn it is takes its lane, and the others are
-- parked behind it. Reads claim.now. Adds to claim.parked.

-- @include lib/lane_layout.lua

local byte, sub = string.byte, string.sub

-- Returns the keys of the records `found` by position, false for none, and whether all have one.
local function keys_of(now, found)
  local lanes, all_have = { unpack(found) }, true -- a copy, because it has room for all
  for i = 1, #found do -- ipairs would call a function for each
    local record, key = found[i], false
    local flags, priority, low, high = byte(record or '', FLAGS_AT, OPTIONS_AT + 1)
    if flags == FLAG_KEY and high and priority <= 9 then -- a shortcut for most messages
      local last = OPTIONS_AT + 1 + low + 256 * high
      key = last <= #record and sub(record, OPTIONS_AT + 2, last)
    elseif flags and flags ~= 0 then
      key = lane_of(now, record)
    end
    lanes[i] = key
    if not key then
      all_have = false
    end
  end
  return lanes, all_have
end

-- Returns the stored owners of lanes by position, false for none.
local function owners_of(lanes, all_have)
  if all_have then
    return redis.call('HMGET', LANES, unpack(lanes))
  end
  local asked, owners, at = {}, {}, 0
  for _, key in ipairs(lanes) do
    asked[#asked + 1] = key or nil
  end
  local stored = #asked > 0 and redis.call('HMGET', LANES, unpack(asked))
  for i, key in ipairs(lanes) do
    at = key and at + 1 or at
    owners[i] = key and stored[at]
  end
  return owners
end

-- Parks due messages whose turn it is not in their lanes, until there are `wanted` others, which own their lanes from
-- now on. Cuts `candidates` off behind them. Returns the keys by position, or true for a message that is parked, the
-- number of the others, and the ids of those that are parked.
local function in_turn(claim, waiting, candidates, found, wanted)
  local lanes, all_have = keys_of(claim.now, found)
  local stored, owner, rows, members, ids_parked = owners_of(lanes, all_have), {}, {}, {}, {}
  local left, r = wanted, 0
  for i = 1, #candidates do
    local id, key = candidates[i], lanes[i]
    local held_by, new_owner = key and (owner[key] or stored[i]), nil
    if left == 0 then
      candidates[i] = nil
    elseif held_by and sub(held_by, 2) ~= id then
      new_owner = byte(held_by) == NONE_PARKED_BYTE and SOME_PARKED .. sub(held_by, 2)
      members[#members + 1] = 0
      members[#members + 1] = parked_member(key, found[i], id)
      ids_parked[#ids_parked + 1] = id
      lanes[i] = true
    else
      new_owner = key and not held_by and NONE_PARKED .. id
      left = left - 1
    end
    if new_owner then
      owner[key] = new_owner
      rows[r + 1] = key
      r = r + 2
      rows[r] = new_owner
    end
  end
  if #ids_parked > 0 then
    redis.call('ZADD', PARKED, unpack(members))
    redis.call('ZREM', waiting, unpack(ids_parked)) -- at once: another may end in this call, and hand its lane on
    claim.parked = claim.parked + #ids_parked
  end
  if r > 0 then
    redis.call('HSET', LANES, LANES_GUARD_FIELD, LANES_GUARD, unpack(rows))
  end
  return lanes, wanted - left, ids_parked
end

-- For a message with a key in a queue without the field `keyed`, because `meta` was lost or an older version stored the
-- message. Returns its key, or true if it is parked.
local function in_its_turn(claim, waiting, id, record)
  redis.call('HSET', META, 'keyed', 1)
  return in_turn(claim, waiting, { id }, { record }, 1)[1]
end
