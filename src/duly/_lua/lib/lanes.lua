-- Lanes (I7): of the messages of one key, one is out at a time. `lanes` says which one, with a mark whether others
-- are parked behind it, so that whoever hands a lane on need not look in vain. As long as any lane is in use there is
-- one field more, a pillar that is too long for the compact form of a hash, in which a look-up walks from the front.

-- @include lib/clock.lua

local LANES_PILLAR_FIELD, LANES_PILLAR = '', string.rep('\1', 65) -- no key is empty
local NOBODY_BEHIND, SOMEBODY_BEHIND, NOBODY_BYTE = '-', '+', 45
-- So many that no member fits into the compact form of a sorted set, in which every look-up walks from the front.
local DUE_DIGITS = 64
local NO_TIME = 9007199254740992 -- microseconds, in the year 2255

-- What stands for a message in `parked`: its lane, then the order within it. Keys have no control characters.
local function member_of(key, priority, due, id)
  if not (due >= 0 and due < NO_TIME) then
    due = 0 -- somebody else wrote it: it must have its digits nevertheless
  end
  return key .. string.format('\0%d%064.0f', 9 - priority, due) .. id
end

local function parked_member(key, record, id)
  return member_of(key, priority_of(record), due_of(record), id)
end

-- The key of a record that is sound, or nil.
local function key_of(record)
  local flags = flags_of(record)
  if not has(flags, FLAG_KEY) then
    return nil
  end
  if flags % 4 == 0 then -- neither ttl nor dedup before it
    return (struct.unpack('<Hc0', record, OPTIONS_AT))
  end
  return options_of(record).key
end

-- The id in a member: behind the separator, one digit and the due time.
local function id_of_parked(member)
  return string.sub(member, string.find(member, '\0', 1, true) + 2 + DUE_DIGITS)
end

local function first_parked(parked, key, count)
  return redis.call('ZRANGEBYLEX', parked, '[' .. key .. '\0', '(' .. key .. '\1', 'LIMIT', 0, count)
end

local function free_lanes(lanes, keys_free)
  redis.call('HDEL', lanes, unpack(keys_free))
  if redis.call('HLEN', lanes) == 1 then
    redis.call('DEL', lanes)
  end
end

-- Gives a lane to the first that is parked. A long lane takes turns with the others: its next one is due since now.
-- The only one goes to its own place: behind all that is due, it would have the rest of its lane parked in vain. False:
-- there was none.
local function let_next_in(keys, key, now)
  local members = first_parked(keys.parked, key, 2)
  if #members == 0 then
    free_lanes(keys.lanes, { key })
    return false
  end
  local id = id_of_parked(members[1])
  local priority = 9 - tonumber(string.sub(members[1], #key + 2, #key + 2))
  redis.call('ZREM', keys.parked, members[1])
  local due = members[2] and now or tonumber(string.sub(members[1], #key + 3, #key + 2 + DUE_DIGITS))
  redis.call('ZADD', keys.waiting[priority], due, id)
  redis.call('HSET', keys.lanes, key, (members[2] and SOMEBODY_BEHIND or NOBODY_BEHIND) .. id)
  return true
end

-- Ends the hold of messages on their lanes; `owners` is { key, id ... }. True: something may be claimed now.
local function hand_on(keys, owners, now)
  local lanes, free, has_next = {}, {}, false
  for i = 1, #owners, 2 do
    lanes[#lanes + 1] = owners[i]
  end
  local stored = redis.call('HMGET', keys.lanes, unpack(lanes))
  for i, key in ipairs(lanes) do
    local id = owners[2 * i]
    if stored[i] == NOBODY_BEHIND .. id then
      free[#free + 1] = key
    elseif stored[i] == SOMEBODY_BEHIND .. id then
      has_next = let_next_in(keys, key, now) or has_next
    end
  end
  if #free > 0 then
    free_lanes(keys.lanes, free)
  end
  return has_next
end

-- For a message that ends, whatever its place: gives up its lane if it has one. A lease knows the lane when the record
-- does not say it any more. True: something may be claimed now.
local function leave_lane(keys, id, record, now, lease)
  local key = lease and lease.key or not flaw_of(record) and key_of(record)
  if not key or not hand_on(keys, { key, id }, now) then
    return false
  end
  remember(keys.meta, now) -- or a server clock that steps back would hide the next one
  return true
end

-- Removes a message from those that wait or are parked. False: it was not there.
local function stop_waiting(keys, id, record)
  if redis.call('ZREM', keys.waiting[priority_of(record)], id) == 1 then
    return true
  end
  local key = key_of(record)
  return key and redis.call('ZREM', keys.parked, parked_member(key, record, id)) == 1 or false
end
