--[[
audit -- look at one step of one key of the queue: is each id in exactly one place, with all it needs?

Online: the ids of a step are judged at one moment, so messages that move meanwhile raise no alarm.

KEYS     msgs        hash    id -> record
         leased      zset    id -> lease deadline
         leases      hash    id -> lease
         counts      hash    id -> what went wrong with it
         why         hash    id -> errors, reason
         expires     zset    id -> when a waiting message with a ttl is over
         dead        zset    id -> when it died
         done        zset    id -> when it was finished
         dedup       hash    dedup value -> id
         dedup_ends  zset    dedup value -> end of its window
         lanes       hash    key -> the id that its lane belongs to
         parked      zset    what is due and behind its lane's id
         wake        list    the wake token
         meta        hash    clock, priorities
         waiting*    zset    id -> due, every priority
ARGV     digits      priorities of `waiting*`
         repair      1: mend what is found | 0: only look
         source      the name of the key to look at; waiting0 ... waiting9
         cursor      where the step before ended; 0 begins
RETURNS  { cursor, checked, live_bytes, dead_bytes, done_bytes, id, fault ... }; cursor 0: the key is through
KEEPS    I1 I2 I7 I9: a repair loses no body, and may be repeated.
]]
-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/lease.lua
-- @include lib/leased.lua
-- @include lib/counts.lua
-- @include lib/why.lua
-- @include lib/waiting.lua
-- @include lib/wake.lua
-- @include lib/lanes.lua
-- @include lib/bury.lua
local digits, repair, source, cursor = ARGV[1], ARGV[2] == '1', ARGV[3], ARGV[4]
local IDS_A_CALL = 50
local keys = {
  msgs = KEYS[1],
  leased = KEYS[2],
  leases = KEYS[3],
  counts = KEYS[4],
  why = KEYS[5],
  expires = KEYS[6],
  dead = KEYS[7],
  done = KEYS[8],
  dedup = KEYS[9],
  dedup_ends = KEYS[10],
  lanes = KEYS[11],
  parked = KEYS[12],
  wake = KEYS[13],
  meta = KEYS[14],
  waiting = waiting_by_priority(15, digits),
}
local now = tick(redis.call('HGET', keys.meta, 'clock'))
local reply = { '0', 0, 0, 0, 0 }

local function fault(id, what, mend)
  reply[#reply + 1] = id
  reply[#reply + 1] = what
  if repair then
    mend()
  end
end

local function end_lease(id)
  redis.call('HDEL', keys.leases, id)
  -- @only group
  ack_entries(group_of(keys.leased), { id })
  -- @end
end

local function wait_again(id, record)
  redis.call('ZADD', keys.waiting[priority_of(record)], due_of(record), id)
  local in_use = redis.call('HGET', keys.meta, 'priorities') or '0'
  redis.call('HSET', keys.meta, 'priorities', with_priority(in_use, priority_of(record)))
  if has(flags_of(record), FLAG_TTL) then
    redis.call('ZADD', keys.expires, expiry_of(record), id)
  end
  leave_token(keys.wake)
end

-- The places of an id, in the order in which one is kept when there are several: a lease that is out,
-- the priority that the record names, its lane, other priorities, dead, done.
local function places_of(id, record)
  local places = {}
  local function look(name, key, member)
    if redis.call('ZSCORE', key, member or id) then
      places[#places + 1] = { name = name, key = key, member = member or id }
    end
  end
  local own = not flaw_of(record) and priority_of(record)
  look('leased', keys.leased)
  if own then
    look('waiting', keys.waiting[own])
    local key = key_of(record)
    if key then
      look('parked', keys.parked, parked_member(key, record, id))
    end
  end
  for priority, key in pairs(keys.waiting) do
    if priority ~= own then
      look('misplaced', key)
    end
  end
  look('dead', keys.dead)
  look('done', keys.done)
  return places
end

local function remove_rows(id)
  redis.call('HDEL', keys.leases, id)
  redis.call('HDEL', keys.counts, id)
  redis.call('HDEL', keys.why, id)
  redis.call('ZREM', keys.expires, id)
end

local function bury_flawed(id, record, size)
  bury(keys, id, record, size, flaw_of(record), counts_of(keys.counts, id), past_of(keys.why, id), now)
end

local function check_nowhere(id, record)
  if record and flaw_of(record) then
    fault(id, 'damaged body without a place', function()
      end_lease(id)
      bury_flawed(id, record, #record)
    end)
  elseif record then
    fault(id, 'body without a place', function()
      end_lease(id)
      wait_again(id, record)
    end)
  elseif source ~= 'msgs' then
    fault(id, 'row in ' .. source .. ' of no message', function()
      remove_rows(id)
    end)
  end
end

local function is_lost_body(id)
  local stored = redis.call('HGET', keys.why, id)
  return stored and cmsgpack.unpack(stored)[1] == 'body lost'
end

local function remove_from(place, id)
  if place.name == 'leased' then
    remove_leased(place.key, { id })
  else
    redis.call('ZREM', place.key, place.member)
  end
end

local function check_bodiless(id, place)
  if place.name == 'done' then
    fault(id, 'finished without a body', function()
      redis.call('ZREM', place.key, id)
      remove_rows(id)
    end)
  elseif place.name == 'dead' and not is_lost_body(id) then
    fault(id, 'dead without a body', function()
      keep_end(keys.why, id, 'body lost', read_counts(nil), past_of(keys.why, id), '')
    end)
  elseif place.name ~= 'dead' then
    fault(id, 'place without a body', function()
      remove_from(place, id)
      redis.call('HDEL', keys.leases, id)
      bury_flawed(id, nil, 0)
    end)
  end
end

local function check_lease(id, record)
  fault(id, 'leased to nobody', function()
    remove_leased(keys.leased, { id })
    wait_again(id, record)
  end)
end

-- Whether an id that should be in `expires` is there, and no other.
local function check_expiry(id, record, is_waiting)
  local is_watched = redis.call('ZSCORE', keys.expires, id)
  if is_waiting and has(flags_of(record), FLAG_TTL) and not is_watched then
    fault(id, 'a ttl that nobody watches', function()
      redis.call('ZADD', keys.expires, expiry_of(record), id)
    end)
  elseif not is_waiting and is_watched then
    fault(id, 'in expires, but not waiting', function()
      redis.call('ZREM', keys.expires, id)
    end)
  end
end

local function check(id)
  local record = redis.call('HGET', keys.msgs, id)
  local places = places_of(id, record)
  reply[2] = reply[2] + 1
  if #places == 0 then
    return check_nowhere(id, record)
  end
  for i = 2, #places do
    fault(id, 'in two places: ' .. places[1].name .. ' and ' .. places[i].name, function()
      remove_from(places[i], id)
    end)
  end
  local place = places[1]
  if not record then
    return check_bodiless(id, place)
  end
  local has_lease = redis.call('HEXISTS', keys.leases, id) == 1
  if flaw_of(record) then
    if place.name ~= 'dead' and place.name ~= 'done' then
      fault(id, 'damaged', function()
        remove_from(place, id)
        redis.call('HDEL', keys.leases, id)
        bury_flawed(id, record, #record)
      end)
    end
  elseif place.name == 'misplaced' then
    fault(id, 'waits under a wrong priority', function()
      redis.call('ZREM', place.key, id)
      wait_again(id, record)
    end)
  elseif place.name == 'leased' and not has_lease then
    check_lease(id, record)
  elseif place.name ~= 'leased' and has_lease then
    fault(id, 'a lease, but not leased', function()
      end_lease(id)
    end)
  else
    check_expiry(id, record, place.name == 'waiting' or place.name == 'parked')
  end
  if source == 'msgs' then
    local at = ({ dead = 4, done = 5 })[place.name] or 3
    reply[at] = reply[at] + #record
  end
end

-- A parked message must have somebody in front of it who knows that it is there.
local function check_parked(member)
  local id = string.find(member, '\0', 1, true) and id_of_parked(member)
  local record = id and redis.call('HGET', keys.msgs, id)
  local key = record and not flaw_of(record) and key_of(record)
  if not key or parked_member(key, record, id) ~= member then
    fault(id or member, 'parked where it does not belong', function()
      redis.call('ZREM', keys.parked, member)
    end)
    return id and check(id)
  end
  check(id)
  local lane = redis.call('HGET', keys.lanes, key)
  if not lane or string.sub(lane, 2) == id then
    fault(id, 'parked behind nobody', function()
      free_lanes(keys.lanes, { key })
      redis.call('ZREM', keys.parked, member)
      wait_again(id, record)
    end)
  elseif string.sub(lane, 1, 1) ~= SOMEBODY_BEHIND then
    fault(id, 'parked behind one that does not know', function()
      redis.call('HSET', keys.lanes, key, SOMEBODY_BEHIND .. string.sub(lane, 2))
    end)
  end
end

-- A lane belongs to a message that is out, waits, or is dead and waited for.
local function check_lane(key, stored)
  local id = string.sub(stored, 2)
  local record = redis.call('HGET', keys.msgs, id)
  local place = places_of(id, record)[1]
  local is_its_key = record and not flaw_of(record) and key_of(record) == key
  reply[2] = reply[2] + 1
  if not is_its_key or not place or place.name == 'parked' or place.name == 'done' then
    fault(id, 'the lane ' .. key .. ' belongs to nobody', function()
      if let_next_in(keys, key, now) then
        remember(keys.meta, now)
        leave_token(keys.wake)
      end
    end)
  end
end

local function check_dedup(value)
  local id, ends = redis.call('HGET', keys.dedup, value), redis.call('ZSCORE', keys.dedup_ends, value)
  reply[2] = reply[2] + 1
  if not (id and ends) then
    fault(value, 'half a dedup window', function()
      redis.call('HDEL', keys.dedup, value)
      redis.call('ZREM', keys.dedup_ends, value)
    end)
  end
end

local HASHES = { msgs = true, leases = true, counts = true, why = true, dedup = true, lanes = true }
local priority = string.match(source, '^waiting(%d)$')
local key = priority and keys.waiting[tonumber(priority)] or keys[source]
local step = redis.call(HASHES[source] and 'HSCAN' or 'ZSCAN', key, cursor, 'COUNT', IDS_A_CALL)
reply[1] = step[1]
local is_dedup = source == 'dedup' or source == 'dedup_ends'
for i = 1, #step[2], 2 do
  if is_dedup then
    check_dedup(step[2][i])
  elseif source == 'parked' then
    check_parked(step[2][i])
  elseif source == 'lanes' and step[2][i] ~= LANES_PILLAR_FIELD then
    check_lane(step[2][i], step[2][i + 1])
  elseif step[2][i] ~= PILLAR and source ~= 'lanes' then
    check(step[2][i])
  end
end
return reply
