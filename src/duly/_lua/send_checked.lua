--[[
send_checked -- store messages that depend on what is there: bounds, dedup, ids of the caller's own.

KEYS     call        string  last call of the stream and its reply
         msgs        hash    id -> record
         expires     zset    id -> when a waiting message with a ttl is over
         counts      hash    id -> what went wrong with it
         why         hash    id -> errors, reason
         dead        zset    id -> when it died
         done        zset    id -> when it was finished
         dedup       hash    dedup value -> id
         dedup_ends  zset    dedup value -> end of its window
         wake        list    the wake token
         stats       hash    counters
         meta        hash    clock, paused, priorities, large
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
KEEPS    I1 I2 I3 I6: guard, then write; one message is stored once.
]]
-- @include lib/call.lua
-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/waiting.lua
-- @include lib/wake.lua
-- @include lib/forget.lua
-- @include lib/expire.lua
-- @include lib/store.lua
local CALL, MSGS, EXPIRES, COUNTS, WHY, DEAD = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local DONE, DEDUP, DEDUP_ENDS, WAKE, STATS, META = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local FIRST_WAITING, FIRST_MESSAGE, STRIDE = 13, 6, 3
local DUPLICATE, FULL, REPLACED = 1, 2, 3
local DROPPED_A_CALL = 1000

local sequence, digits = tonumber(ARGV[1]), ARGV[2]
local max_length, max_bytes, on_full = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local keys = {
  msgs = MSGS, expires = EXPIRES, counts = COUNTS, why = WHY, dedup = DEDUP, dedup_ends = DEDUP_ENDS,
  wake = WAKE, stats = STATS, meta = META, waiting = waiting_by_priority(FIRST_WAITING, digits),
}

local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end

local meta = read_meta(META)
local now = tick(meta.clock)
local message_count = (#ARGV - FIRST_MESSAGE + 1) / STRIDE

-- The room that is left, with what is past its ttl out of the way.
local function room()
  local length, bytes = math.huge, math.huge
  if max_length >= 0 then
    length = max_length - (redis.call('HLEN', MSGS) - redis.call('ZCARD', DEAD) - redis.call('ZCARD', DONE))
  end
  if max_bytes >= 0 then
    bytes = max_bytes - tonumber(redis.call('HGET', STATS, 'bytes') or 0)
  end
  return length, bytes
end

if max_length >= 0 or max_bytes >= 0 then
  redis.call('HSET', META, 'clock', string.format('%.0f', now)) -- refused by a full server, before anything else
  expire_some(keys, now)
end
local length_left, bytes_left = room()

-- Guard: what becomes of each message. Later messages of the call see the earlier ones.
local offsets, renamed, index_of, dedup_here = {}, {}, {}, {}
local outcomes, replaced, size_of = {}, {}, {}

local function first_with(value)
  if dedup_here[value] then
    return dedup_here[value]
  end
  local id = redis.call('HGET', DEDUP, value)
  local ends = id and redis.call('ZSCORE', DEDUP_ENDS, value)
  return ends and tonumber(ends) > now and id
end

local function waiting_record(id)
  local record = redis.call('HGET', MSGS, id)
  if record and redis.call('ZSCORE', keys.waiting[priority_of(record)], id) then
    return record
  end
  return nil
end

local function is_kept(id)
  if redis.call('HEXISTS', MSGS, id) == 1 then
    return not redis.call('ZSCORE', DONE, id)
  end
  return redis.call('ZSCORE', DEAD, id) -- dead, and its body was lost
end

-- What a message with options is: nil when it is new, else an outcome and the id that it is about.
local function known_as(id, flags, options)
  local first = options.dedup and first_with(options.dedup)
  if first and not has(flags, FLAG_REPLACE) then
    return DUPLICATE, first
  end
  if first and (index_of[first] or waiting_record(first)) then
    return REPLACED, first
  end
  if has(flags, FLAG_OWN_ID) and (index_of[id] or is_kept(id)) then
    return DUPLICATE, id
  end
  return nil, id
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
  local flags, options = string.byte(part, 2), options_of(NO_STAMP .. part)
  local outcome, id = known_as(ARGV[at], flags, options)
  local size = STAMP_SIZE + #part
  if outcome == REPLACED then
    accept_instead(at, id, size)
  elseif not outcome and on_full ~= 'drop' and (length_left < 1 or bytes_left < size) then
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

local function refuse_all()
  local reply = { now }
  for position = 1, message_count do
    table.insert(reply, position)
    table.insert(reply, FULL)
    table.insert(reply, ARGV[FIRST_MESSAGE + (position - 1) * STRIDE])
  end
  return reply
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
  local offset_in, dropped = {}, {}
  while (length_left < 0 or bytes_left < 0) and #dropped < DROPPED_A_CALL + message_count do
    local oldest, oldest_due
    for priority, place in pairs(keys.waiting) do
      local offset = offset_in[priority] or 0
      local head = redis.call('ZRANGE', place, offset, offset, 'WITHSCORES')
      if #head > 0 and (not oldest or tonumber(head[2]) < oldest_due) then
        oldest, oldest_due = { id = head[1], priority = priority }, tonumber(head[2])
      end
    end
    if not oldest then
      return nil
    end
    offset_in[oldest.priority] = (offset_in[oldest.priority] or 0) + 1
    if not index_of[oldest.id] then -- not one that takes a new body
      oldest.size = redis.call('HSTRLEN', MSGS, oldest.id)
      length_left, bytes_left = length_left + 1, bytes_left + oldest.size
      table.insert(dropped, oldest)
    end
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
redis.call('HSET', META, 'clock', string.format('%.0f', now))
for _, oldest in ipairs(dropped) do
  redis.call('ZREM', keys.waiting[oldest.priority], oldest.id)
  forget(keys, oldest.id)
  redis.call('HINCRBY', STATS, 'bytes', -oldest.size)
  redis.call('HINCRBY', STATS, 'dropped', 1)
end
for _, old in ipairs(replaced) do
  redis.call('ZREM', keys.waiting[priority_of(old.record)], old.id)
  forget(keys, old.id)
  redis.call('HINCRBY', STATS, 'bytes', -#old.record)
end

-- A finished message whose id is used again makes room for the new one.
for id in pairs(index_of) do
  if redis.call('ZREM', DONE, id) == 1 then
    redis.call('HINCRBY', STATS, 'done_bytes', -redis.call('HSTRLEN', MSGS, id))
    redis.call('HINCRBY', STATS, 'done_trimmed', 1)
    redis.call('HDEL', WHY, id)
  end
end

local function open_window(id, options)
  redis.call('HSET', DEDUP, options.dedup, id)
  redis.call('ZADD', DEDUP_ENDS, now + options.dedup_for, options.dedup)
  local ms = math.ceil(options.dedup_for / 1000) + 1000
  if redis.call('PTTL', DEDUP) < ms then -- the keys go with their last window
    redis.call('PEXPIRE', DEDUP, ms)
    redis.call('PEXPIRE', DEDUP_ENDS, ms)
  end
end

local windows = 0
if #offsets > 0 then
  store(keys, meta, now, offsets, renamed)
  local sent = #offsets - #replaced
  if sent > 0 then
    redis.call('HINCRBY', STATS, 'sent', sent)
  end
  for _, at in ipairs(offsets) do
    local options = options_of(NO_STAMP .. ARGV[at + 1])
    if options.dedup then
      open_window(renamed[at] or ARGV[at], options)
      windows = windows + 1
    end
  end
end
if windows > 0 then
  local over = redis.call('ZRANGEBYSCORE', DEDUP_ENDS, '-inf', now, 'LIMIT', 0, 2 * windows)
  if #over > 0 then
    redis.call('ZREM', DEDUP_ENDS, unpack(over))
    redis.call('HDEL', DEDUP, unpack(over))
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
  redis.call('HINCRBY', STATS, 'duplicates', counted[DUPLICATE])
end
if counted[REPLACED] > 0 then
  redis.call('HINCRBY', STATS, 'replaced', counted[REPLACED])
end
return answer(CALL, sequence, reply)
