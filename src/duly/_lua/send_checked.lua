--[[
send_checked -- store messages that depend on what is there: bounds, ttl, dedup, ids of the caller's own.

KEYS     call        string  last call of the stream and its reply
         msgs        hash    id -> record
         expires     zset    id -> when a waiting message with a ttl is over
         leased      zset    id -> lease deadline
         counts      hash    id -> what went wrong with it
         why         hash    id -> errors, reason
         dead        zset    id -> when it died
         done        zset    id -> when it was finished
         dedup       hash    dedup value -> id
         dedup_ends  zset    dedup value -> end of its window
         lanes       hash    key -> the id that its lane belongs to
         parked      zset    what is due and behind its lane's id
         wake        list    the wake token
         meta        hash    clock, paused, priorities, large, keyed, limited
         waiting*    zset    id -> due, every priority
ARGV     sequence    of the call in its stream
         digits      priorities of `waiting*`
         max_length  live messages at the most; -1: any number
         max_bytes   bytes of live messages at the most; -1: any number
         on_full     each: refuse what does not fit | all: refuse the call | drop: drop the oldest waiting
         messages*   id, part, when: 0 now | +us from now | =us since the epoch
RETURNS  { now, position, outcome, id ... } for the messages that were not simply stored:
         1  duplicate: `id` was there first
         2  full: not stored
         3  replaced: `id` was waiting and has the new body and due time
KEEPS    I1 I2 I3 I6 I7: guard, then write; one message is stored once.
]]
-- @include lib/call.lua
-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/waiting.lua
-- @include lib/leased.lua
-- @include lib/wake.lua
-- @include lib/forget.lua
-- @include lib/expire.lua
-- @include lib/place.lua
-- @include lib/store.lua
-- @include lib/windows.lua
local FIRST_WAITING, FIRST_MESSAGE, STRIDE = 15, 6, 3
local DUPLICATE, FULL, REPLACED = 1, 2, 3
local DROPPED_BESIDE = 100 -- more than comes in, so that a bound made smaller is reached

local sequence, digits = ARGV[1], ARGV[2]
local max_length, max_bytes, on_full = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local keys = {
  call = KEYS[1],
  msgs = KEYS[2],
  expires = KEYS[3],
  leased = KEYS[4],
  counts = KEYS[5],
  why = KEYS[6],
  dead = KEYS[7],
  done = KEYS[8],
  dedup = KEYS[9],
  dedup_ends = KEYS[10],
  lanes = KEYS[11],
  parked = KEYS[12],
  wake = KEYS[13],
  meta = KEYS[14],
  waiting = waiting_by_priority(FIRST_WAITING, digits),
}

local repeated = answered(keys.call, sequence)
if repeated then
  return repeated
end

local meta = read_meta(keys.meta)
local now, ahead = tick(meta.clock)
local message_count = (#ARGV - FIRST_MESSAGE + 1) / STRIDE

-- The room that is left, in messages and bytes.
local function room()
  local length, bytes = math.huge, math.huge
  if max_length >= 0 then
    length = max_length - count_leased(keys.leased) - redis.call('ZCARD', keys.parked)
    for _, place in ipairs(places_of_digits(keys.waiting, meta.priorities)) do
      length = length - redis.call('ZCARD', place.key)
    end
  end
  if max_bytes >= 0 then
    bytes = max_bytes - tonumber(redis.call('HGET', keys.meta, 'bytes') or 0)
  end
  return length, bytes
end

if max_length >= 0 or max_bytes >= 0 then
  remember(keys.meta, now) -- refused by a full server, before anything else
  expire_some(keys, now, message_count) -- what is past its ttl holds no room
end
local length_left, bytes_left = room()

-- Guard: what becomes of each message. Later messages of the call see the earlier ones.
local offsets, renamed, index_of, dedup_here = {}, {}, {}, {}
local outcomes, replaced, expired, size_of = {}, {}, {}, {}

-- Whether a message waits past its ttl, unswept: then it is gone for whoever asks, and dropped below.
local function is_over(id, place, record)
  local is_waiting = place == 'waiting' or place == 'parked'
  if not is_waiting or flaw_of(record) or not has(flags_of(record), FLAG_TTL) or expiry_of(record) > now then
    return false
  end
  if not expired[id] then
    expired[id] = record
    length_left, bytes_left = length_left + 1, bytes_left + #record
  end
  return true
end

local function first_with(value)
  if dedup_here[value] then
    return dedup_here[value]
  end
  local id = redis.call('HGET', keys.dedup, value)
  local ends = id and redis.call('ZSCORE', keys.dedup_ends, value)
  if not ends or tonumber(ends) <= now then
    return nil
  end
  local record = redis.call('HGET', keys.msgs, id)
  return not is_over(id, place_of(keys, id, record), record) and id or nil
end

-- The record of a message that waits, or is parked.
local function waiting_record(id)
  local record = redis.call('HGET', keys.msgs, id)
  local place = not flaw_of(record) and place_of(keys, id, record)
  return (place == 'waiting' or place == 'parked') and record or nil
end

-- Whether the message that had a dedup value first still waits. Its id may be another message's by now.
local function waits_with(id, value)
  local record = waiting_record(id)
  return record and options_of(record).dedup == value
end

-- Whether an id of the caller's own is in the queue. Finished ones are not, nor is one past its ttl.
local function is_kept(id)
  local record = redis.call('HGET', keys.msgs, id)
  local place = place_of(keys, id, record)
  return place and place ~= 'done' and not is_over(id, place, record)
end

-- What a message is: nil when it is new, else an outcome; and the id that it is about.
local function known_as(id, flags, options)
  local first = options.dedup and first_with(options.dedup)
  if first and not has(flags, FLAG_REPLACE) then
    return DUPLICATE, first
  end
  if first and (dedup_here[options.dedup] or waits_with(first, options.dedup)) then
    return REPLACED, first
  end
  if has(flags, FLAG_OWN_ID) and (index_of[id] or is_kept(id)) then
    return DUPLICATE, id
  end
  return nil, id
end

local function can_ever_fit(size)
  return max_length ~= 0 and (max_bytes < 0 or size <= max_bytes)
end

local function accept(at, id, size)
  offsets[#offsets + 1] = at
  index_of[id] = #offsets
  size_of[id] = size
  length_left, bytes_left = length_left - 1, bytes_left - size
end

-- The message takes the place of one that waits: of the one in this call, or of a stored one.
local function accept_instead(at, id, size)
  renamed[at] = id
  if index_of[id] then
    bytes_left = bytes_left + size_of[id] - size
    offsets[index_of[id]] = at
    size_of[id] = size
    return
  end
  local record = waiting_record(id)
  replaced[#replaced + 1] = { id = id, record = record }
  length_left, bytes_left = length_left + 1, bytes_left + #record
  accept(at, id, size)
end

for at = FIRST_MESSAGE, #ARGV, STRIDE do
  local part = ARGV[at + 1]
  local flags, options = string.byte(part, 2), options_of_part(part)
  local outcome, id = known_as(ARGV[at], flags, options)
  local size = STAMP_SIZE + #part
  if outcome == REPLACED then
    accept_instead(at, id, size)
  elseif not outcome and (length_left < 1 or bytes_left < size) and (on_full ~= 'drop' or not can_ever_fit(size)) then
    outcome = FULL
  elseif not outcome then
    accept(at, id, size)
  end
  if options.dedup and (not outcome or outcome == REPLACED) then
    dedup_here[options.dedup] = id
  end
  if outcome then
    table.insert(outcomes, { position = (at - FIRST_MESSAGE) / STRIDE + 1, outcome = outcome, id = id })
  end
end

-- Nothing is stored: what is known keeps its answer, everything else found no room.
local function refuse_all()
  local answers = {}
  for position = 1, message_count do
    answers[position] = { FULL, ARGV[FIRST_MESSAGE + (position - 1) * STRIDE] }
  end
  for _, each in ipairs(outcomes) do
    if each.outcome == DUPLICATE and not index_of[each.id] then
      answers[each.position] = { DUPLICATE, each.id }
    end
  end
  local reply = { now }
  for position, each in ipairs(answers) do
    table.insert(reply, position)
    table.insert(reply, each[1])
    table.insert(reply, each[2])
  end
  return answer(keys.call, sequence, reply)
end

if on_full == 'all' then
  for _, each in ipairs(outcomes) do
    if each.outcome == FULL then
      return refuse_all()
    end
  end
end

-- The waiting messages that must go so that all fits, oldest due first; nil when that is not enough.
-- Bounded: after a `max_length` that was made much smaller, several sends share the work.
local function oldest_to_drop()
  local heads, dropped = {}, {}
  local most = message_count + DROPPED_BESIDE
  local last = most + message_count - 1 -- some may be passed over: they take a new body
  for i, place in ipairs(places_of_digits(keys.waiting, meta.priorities)) do
    heads[i] = { place = place, rows = redis.call('ZRANGE', place.key, 0, last, 'WITHSCORES'), at = 1 }
  end
  while (length_left < 0 or bytes_left < 0) and #dropped < most do
    local oldest
    for _, head in ipairs(heads) do
      while index_of[head.rows[head.at]] or expired[head.rows[head.at]] do -- it takes a new body, or goes anyway
        head.at = head.at + 2
      end
      local due = tonumber(head.rows[head.at + 1])
      if due and (not oldest or due < tonumber(oldest.rows[oldest.at + 1])) then
        oldest = head
      end
    end
    if not oldest then
      return nil
    end
    local id = oldest.rows[oldest.at]
    local record = redis.call('HGET', keys.msgs, id)
    local size = record and #record or 0
    oldest.at = oldest.at + 2
    length_left, bytes_left = length_left + 1, bytes_left + size
    table.insert(dropped, { id = id, key = oldest.place.key, size = size, record = record })
  end
  return dropped
end

local dropped = {}
if on_full == 'drop' then
  dropped = oldest_to_drop()
  if not dropped then
    return refuse_all()
  end
end

-- Writes. The first is one that a full server refuses.
remember(keys.meta, now)
local has_next = false
for _, oldest in ipairs(dropped) do
  redis.call('ZREM', oldest.key, oldest.id)
  has_next = leave_lane(keys, oldest.id, oldest.record, now) or has_next
  free_dedup(keys, oldest.id, oldest.record)
  forget(keys, oldest.id)
  redis.call('HINCRBY', keys.meta, 'bytes', 0 - oldest.size)
  redis.call('HINCRBY', keys.meta, 'dropped', 1)
end
for id, record in pairs(expired) do
  drop_expired(keys, id, record, now)
end
for _, old in ipairs(replaced) do
  stop_waiting(keys, old.id, old.record)
  has_next = leave_lane(keys, old.id, old.record, now) or has_next
  forget(keys, old.id)
  redis.call('HINCRBY', keys.meta, 'bytes', 0 - #old.record)
end
if has_next then
  leave_token(keys.wake)
end

-- A finished message whose id is used again makes room for the new one.
for id in pairs(index_of) do
  if redis.call('ZREM', keys.done, id) == 1 then
    redis.call('HINCRBY', keys.meta, 'done_bytes', 0 - redis.call('HSTRLEN', keys.msgs, id))
    redis.call('HINCRBY', keys.meta, 'done_trimmed', 1)
    redis.call('HDEL', keys.why, id)
  end
end

local windows = 0

local function open_window(id, options)
  redis.call('HSET', keys.dedup, options.dedup, id)
  redis.call('ZADD', keys.dedup_ends, now + options.dedup_for, options.dedup)
  local ms = math.ceil(options.dedup_for / 1000) + 1000
  if redis.call('PTTL', keys.dedup) < ms then -- the keys go with their last window
    redis.call('PEXPIRE', keys.dedup, ms)
    redis.call('PEXPIRE', keys.dedup_ends, ms)
  end
  windows = windows + 1
end

if #offsets > 0 then
  store(keys, meta, now, ahead, offsets, renamed, function(id, record)
    local options = options_of(record)
    if options.ttl then
      redis.call('ZADD', keys.expires, expiry_of(record), id)
    end
    if options.dedup then
      open_window(id, options)
    end
  end)
  if #offsets > #replaced then
    redis.call('HINCRBY', keys.meta, 'sent', #offsets - #replaced)
  end
  if windows > 0 then
    close_windows(keys, now, 2 * windows)
  end
end

local reply, counted = { now }, { 0, 0, 0 }
for _, each in ipairs(outcomes) do
  table.insert(reply, each.position)
  table.insert(reply, each.outcome)
  table.insert(reply, each.id)
  counted[each.outcome] = counted[each.outcome] + 1
end
if counted[DUPLICATE] > 0 then
  redis.call('HINCRBY', keys.meta, 'duplicates', counted[DUPLICATE])
end
if counted[REPLACED] > 0 then
  redis.call('HINCRBY', keys.meta, 'replaced', counted[REPLACED])
end
return answer(keys.call, sequence, reply)
