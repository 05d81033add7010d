--[[
redrive -- put dead letters back into the queue as new: the oldest, or the named ones.

KEYS     call, msgs, leases, counts, expires, why, dead, lanes, parked, wake, meta, waiting*
ARGV     sequence  text
         digits    text
         limit     number  messages at the most, up to 1,000
         at_end    flag    1: after all messages that are due now | 0: to their original due time
         letters*  rows    id, died, part: '' keeps the body; none: the oldest
DRAINS   leases
RETURNS  { redriven, left }
KEEPS    I1 I2 I6 I7: counts and errors are reset; a dead letter whose body was lost stays.
]]
-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/counts.lua
-- @include lib/history.lua
-- @include lib/lanes.lua
-- @include lib/large.lua
-- @include lib/row_bytes.lua
-- @include lib/wake.lua
local LOOKED_PAST = 999 -- unreadable letters, which stay in front of the others

local now = tick(redis.call('HGET', keys.meta, 'clock'))
local redriven, size, dead_size = 0, 0, 0

-- Whether `record` comes before the owner of its lane, and the owner was never delivered.
local function is_before(record, owner, owner_record)
  if flaw_of(owner_record) or was_delivered(counts_of(keys.counts, owner)) then
    return false
  end
  local priority, owner_priority = priority_of(record), priority_of(owner_record)
  if not redis.call('ZSCORE', keys.waiting[owner_priority], owner) then
    return false
  end
  return priority > owner_priority or (priority == owner_priority and due_of(record) < due_of(owner_record))
end

local function park(key, id, record)
  redis.call('ZREM', keys.waiting[priority_of(record)], id)
  redis.call('ZADD', keys.parked, 0, parked_member(key, record, id))
end

-- A message with its original due time comes before later ones, even before the owner of its lane if that was never
-- delivered. If it does not get its lane it is parked at once. Otherwise the lane would be handed on and skip it.
local function take_place_in_lane(key, id, record, owner)
  local owner_record = redis.call('HGET', keys.msgs, owner)
  if is_before(record, owner, owner_record) then
    park(key, owner, owner_record)
    redis.call('HSET', keys.lanes, key, SOME_PARKED .. id)
  elseif due_of(record) <= now then
    park(key, id, record)
    redis.call('HSET', keys.lanes, key, SOME_PARKED .. owner)
  end
end

local function return_to_lane(id, record, is_own_place)
  local key = key_of(record)
  local stored = key and redis.call('HGET', keys.lanes, key)
  local owner = stored and string.sub(stored, 2)
  if owner == id and at_end then
    hand_on(keys, { key }, { id }, now) -- it blocked its lane, and now others go first
  elseif owner and owner ~= id and is_own_place then
    take_place_in_lane(key, id, record, owner)
  end
end

local function redrive(id, old, part)
  local is_own_place = not at_end and not has(flags_of(old), FLAG_TTL)
  local due = is_own_place and due_of(old) or now + redriven -- a ttl counts from now: it may be over already
  local record = stamped(sent_of(old), due, part == '' and part_of(old) or part)
  if record ~= old then
    redis.call('HSET', keys.msgs, id, record)
  end
  if has(flags_of(record), FLAG_TTL) then
    redis.call('ZADD', keys.expires, expiry_of(record), id)
  end
  if #record > LARGE then
    redis.call('HSET', keys.meta, 'large', 1)
  end
  local history, counts = history_of(keys.why, id), counts_of_redriven(keys.why, id)
  add_row_bytes(keys, 'dead', 0 - redis.call('HSTRLEN', keys.why, id))
  history.errors = {}
  add_event(history, now, 'redrive')
  keep_history(keys.why, id, history)
  keep_counts(keys.counts, id, counts)
  redis.call('ZREM', keys.dead, id)
  redis.call('ZADD', keys.waiting[priority_of(record)], due, id)
  return_to_lane(id, record, is_own_place)
  redriven, size, dead_size = redriven + 1, size + #record, dead_size + #old
end

local function redrive_if_sound(id, part)
  local record = redriven < limit and redis.call('HGET', keys.msgs, id)
  if record and not flaw_of(record) then
    redrive(id, record, part)
  end
end

if letters.last < letters.first then
  for _, id in ipairs(redis.call('ZRANGE', keys.dead, 0, limit + LOOKED_PAST)) do
    redrive_if_sound(id, '')
  end
end
for at = letters.first, letters.last, letters.stride do
  local died = redis.call('ZSCORE', keys.dead, letters.id(at))
  if died and tonumber(died) == tonumber(letters.died(at)) then -- the same letter as the one that was listed
    redrive_if_sound(letters.id(at), letters.part(at))
  end
end

local left = redis.call('ZCARD', keys.dead)
if redriven == 0 then
  return answer({ 0, left }) -- stored: a late copy must not redrive messages that die later
end
redis.call('HINCRBY', keys.meta, 'redriven', redriven)
redis.call('HINCRBY', keys.meta, 'bytes', size)
redis.call('HINCRBY', keys.meta, 'dead_bytes', 0 - dead_size)
store_row_bytes(keys)
store_clock(keys.meta, now + redriven - 1)
leave_wake_token(keys.wake)
return answer({ redriven, left })
