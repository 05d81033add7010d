--[[
move -- move dead letters to another queue, where they are new messages.

KEYS     call, msgs, why, dead, lanes, parked, wake, meta, waiting*
         others*: the keys of the other queue that send_checked has after `call`
ARGV     sequence    text
         digits      text    priorities of `waiting*`, in both queues
         max_length  number  live messages of the other queue at the most; -1: any number
         max_bytes   number  bytes of its live messages at the most; -1: any number
         detail      text    detail of the event in the timeline
         letters*    rows    id, died, part: '' keeps the body
DRAINS   msgs
RETURNS  { moved, is_full, id ... }: is_full 1 if one found no room, and the rest were not tried; the ids are live or
         dead in the other queue already, and stay here
KEEPS    I1 I2 I6 I7: a letter is in one of the queues; its lane goes on.
]]
-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/counts.lua
-- @include lib/history.lua
-- @include lib/lanes.lua
-- @include lib/large.lua
-- @include lib/waiting.lua
-- @include lib/leased.lua
-- @include lib/wake.lua
-- @include lib/forget.lua
-- @include lib/expire.lua
-- @include lib/place.lua
-- @include lib/send_plan.lua
-- @include lib/row_bytes.lua
-- @include lib/types.lua
local here, there = keys, sending_keys(others.first, digits)

local wrong = mistyped(here) or mistyped(there)
if wrong then
  return redis.error_reply('WRONGTYPE the key ' .. wrong .. ' of a queue was overwritten')
end

local meta = read_meta(there.meta)
local now_here, now_there = tick(redis.call('HGET', here.meta, 'clock')), tick(meta.clock)
local in_use, has_large, has_keys = meta.priorities, meta.large, meta.keyed
local moved, freed, size, is_full, has_next, known = 0, 0, 0, false, false, {}
-- Expired messages hold no room and no id.
expire_some(there, now_there, (letters.last - letters.first + 1) / letters.stride)

local length_left, bytes_left = math.huge, math.huge
if max_length >= 0 then
  length_left = max_length - count_leased(there.leased) - redis.call('ZCARD', there.parked)
  for _, place in ipairs(places_of_digits(there.waiting, meta.priorities)) do
    length_left = length_left - redis.call('ZCARD', place.key)
  end
end
if max_bytes >= 0 then
  bytes_left = max_bytes - tonumber(redis.call('HGET', there.meta, 'bytes') or 0)
end

-- Stores a letter in the other queue as a new message. It keeps its send time, timeline and number of cycles.
local function arrive(id, record, due)
  local history, counts = history_of(here.why, id), counts_of_redriven(here.why, id)
  history.errors = {}
  add_event(history, due, 'redrive', nil, detail)
  forget_done(there, id)
  redis.call('HSET', there.msgs, id, record)
  redis.call('ZADD', there.waiting[priority_of(record)], due, id)
  keep_history(there.why, id, history)
  keep_counts(there.counts, id, counts)
  if has(flags_of(record), FLAG_TTL) then
    redis.call('ZADD', there.expires, expiry_of(record), id)
  end
  in_use = with_priority(in_use, priority_of(record))
  has_large = has_large or #record > LARGE
  has_keys = has_keys or has(flags_of(record), FLAG_KEY)
end

local function leave(id, record)
  add_row_bytes(here, 'dead', 0 - redis.call('HSTRLEN', here.why, id))
  redis.call('ZREM', here.dead, id)
  redis.call('HDEL', here.msgs, id)
  redis.call('HDEL', here.why, id)
  has_next = leave_lane(here, id, record, now_here) or has_next
end

-- Returns the record of a letter, or nil if the id now belongs to another letter than the one that was listed.
local function record_of(id, died)
  local score = redis.call('ZSCORE', here.dead, id)
  local record = score and tonumber(score) == tonumber(died) and redis.call('HGET', here.msgs, id)
  return record and not flaw_of(record) and record or nil
end

local function is_known_there(id)
  local place = place_of(there, id, redis.call('HGET', there.msgs, id))
  return place and place ~= 'done'
end

local function move(id, old, part)
  local due = now_there + moved
  local record = stamped(sent_of(old), due, part == '' and part_of(old) or part)
  if length_left < 1 or bytes_left < #record then
    is_full = true
    return
  end
  arrive(id, record, due)
  leave(id, old)
  length_left, bytes_left = length_left - 1, bytes_left - #record
  moved, freed, size = moved + 1, freed + #old, size + #record
end

for at = letters.first, letters.last, letters.stride do
  local id = letters.id(at)
  local record = not is_full and record_of(id, letters.died(at))
  if record and is_known_there(id) then
    known[#known + 1] = id
  elseif record then
    move(id, record, letters.part(at))
  end
end

local reply = { moved, is_full and 1 or 0, unpack(known) }
if moved == 0 then
  return answer(reply) -- stored: a late copy must not move messages that die later
end
redis.call('HINCRBY', here.meta, 'moved', moved)
redis.call('HINCRBY', here.meta, 'dead_bytes', 0 - freed)
store_row_bytes(here)
store_row_bytes(there)
if has_next then
  leave_wake_token(here.wake)
else
  take_wake_token_if_empty(here.wake, here.msgs, here.meta)
end
store_clock(there.meta, now_there + moved - 1)
redis.call('HINCRBY', there.meta, 'sent', moved)
redis.call('HINCRBY', there.meta, 'bytes', size)
if in_use ~= meta.priorities then
  redis.call('HSET', there.meta, 'priorities', in_use)
end
if has_large and not meta.large then
  redis.call('HSET', there.meta, 'large', 1)
end
if has_keys and not meta.keyed then
  redis.call('HSET', there.meta, 'keyed', 1)
end
if not meta.paused and not is_limited(meta.limited, now_there + moved - 1) then
  leave_wake_token(there.wake)
end
return answer(reply)
