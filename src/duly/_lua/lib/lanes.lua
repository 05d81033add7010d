-- Lanes (I7): of the messages of one key, one is out at a time. `lanes` says which one, with a mark whether others
-- are parked behind it, so that whoever hands a lane on need not look in vain.

local NOBODY_BEHIND, SOMEBODY_BEHIND = '-', '+'
local DUE_DIGITS = 16

-- What stands for a message in `parked`: its lane, then the order within it. Keys have no control characters.
local function member_of(key, priority, due, id)
  return key .. string.format('\0%d%016.0f', 9 - priority, due) .. id
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

-- Gives a lane to the first that is parked; due since now, so that lanes take turns. False: there was none.
local function let_next_in(keys, key, now)
  local members = first_parked(keys.parked, key, 2)
  if #members == 0 then
    redis.call('HDEL', keys.lanes, key)
    return false
  end
  local id = id_of_parked(members[1])
  local priority = 9 - tonumber(string.sub(members[1], #key + 2, #key + 2))
  redis.call('ZREM', keys.parked, members[1])
  redis.call('ZADD', keys.waiting[priority], now, id)
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
    redis.call('HDEL', keys.lanes, unpack(free))
  end
  return has_next
end

-- For a message that ends, whatever its place: gives up its lane if it has one.
local function leave_lane(keys, id, record, now)
  local key = not flaw_of(record) and key_of(record)
  return key and hand_on(keys, { key, id }, now) or false
end

-- Removes a message from those that wait or are parked. False: it was not there.
local function stop_waiting(keys, id, record)
  if redis.call('ZREM', keys.waiting[priority_of(record)], id) == 1 then
    return true
  end
  local key = key_of(record)
  return key and redis.call('ZREM', keys.parked, parked_member(key, record, id)) == 1 or false
end
