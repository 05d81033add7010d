-- Lanes (I7): one message of a key is in flight at a time. `lanes` has the id of the lane's owner, and a mark whether
-- messages are parked behind it, which saves a search in `parked` when the lane is handed on. While any lane is in use
-- there is one field more, an encoding guard. It is too long for the compact encoding of a hash, in which every lookup
-- is a linear search.

-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/lane_layout.lua

-- Returns the key of a readable record, or nil.
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

-- Returns the id in a member: it follows the separator, one digit and the due time.
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

-- Gives lanes to their first parked messages: { key, member, whether more are parked ... }. If more are parked the
-- message is due now, so that a long lane takes turns with other messages. The last one keeps its due time: if it were
-- due now, later messages of its lane could come before it and be parked for nothing.
local function give_lanes(keys, first, now)
  local members, rows, places = {}, {}, {}
  for i = 1, #first, 3 do
    local key, member, has_more = first[i], first[i + 1], first[i + 2]
    local at = #key + 2
    local id, priority = string.sub(member, at + DUE_DIGITS + 1), 9 - tonumber(string.sub(member, at, at))
    local place = places[priority] or {}
    places[priority] = place
    members[#members + 1] = member
    rows[#rows + 1] = key
    rows[#rows + 1] = (has_more and SOME_PARKED or NONE_PARKED) .. id
    place[#place + 1] = has_more and now or string.sub(member, at + DUE_DIGITS - LAST_DIGITS + 1, at + DUE_DIGITS)
    place[#place + 1] = id
  end
  for priority, place in pairs(places) do
    redis.call('ZADD', keys.waiting[priority], unpack(place))
  end
  redis.call('HSET', keys.lanes, unpack(rows))
  redis.call('ZREM', keys.parked, unpack(members)) -- last: a call that fails on a damaged key loses no message
end

-- Hands `lanes` of the messages `owners` on to their next messages, and uses the table for those that are free then.
-- Returns true if one of the next messages may be claimed now.
local function hand_on(keys, lanes, owners, now)
  local stored = redis.call('HMGET', keys.lanes, unpack(lanes))
  local first, n, free = {}, 0, 0
  for i = 1, #owners do -- ipairs would call a function for each
    local id, key, stored_owner = owners[i], lanes[i], stored[i]
    local is_free = stored_owner == NONE_PARKED .. id
    if not is_free and stored_owner == SOME_PARKED .. id then
      local members = first_parked(keys.parked, key, 2)
      is_free = not members[1]
      if not is_free then
        first[n + 1], first[n + 2], first[n + 3] = key, members[1], #members > 1
        n = n + 3
      end
    end
    if is_free then
      free = free + 1
      lanes[free] = key
    end
  end
  if n > 0 then
    give_lanes(keys, first, now)
  end
  if free > 0 then
    free_lanes(keys.lanes, { unpack(lanes, 1, free) })
  end
  return n > 0
end

-- Hands on the lane of a message that ends, in any place. If the record is lost, its lease has the key. Returns true if
-- another message may be claimed now.
local function leave_lane(keys, id, record, now, lease)
  local key = lease and lease.key or not flaw_of(record) and key_of(record)
  if not key or not hand_on(keys, { key }, { id }, now) then
    return false
  end
  store_clock(keys.meta, now) -- otherwise a server clock that steps back would hide the next message
  return true
end

-- Removes a message from `waiting*` or `parked`. Returns false if it was in neither.
local function stop_waiting(keys, id, record)
  if redis.call('ZREM', keys.waiting[priority_of(record)], id) == 1 then
    return true
  end
  local key = key_of(record)
  return key and redis.call('ZREM', keys.parked, parked_member(key, record, id)) == 1 or false
end
