--[[
publish -- add entries to the stream of a topic, and keep it within its bounds.

Whoever waits for entries is woken by the stream itself. Publishes that waited for their time and are due enter behind
these.

KEYS     call        string  last call of the stream of calls and its reply
         stream      stream  the entries
         msgs        hash    id -> record, of publishes that wait for their time
         dedup       hash    dedup value -> id
         dedup_ends  zset    dedup value -> end of its window
         meta        hash    clock, largest, counters
         waiting*    zset    id -> due, of publishes that wait for their time
ARGV     sequence    of the call in its stream of calls
         keep_count  entries kept; -1: any number
         keep_age    microseconds they are kept; -1: for ever
         keep_bytes  bytes the stream may take; -1: any number
         entries*    dedup value or '', window in microseconds, number of texts, then so many: field, value ...
RETURNS  { id ... } of the entries; where a dedup value was known, of the first that had it
KEEPS    I6
]]
-- @include lib/call.lua
-- @include lib/clock.lua
-- @include lib/let_in.lua
-- @include lib/retain.lua
-- @include lib/windows.lua
local CALL, STREAM = KEYS[1], KEYS[2]
local topic = { msgs = KEYS[3], dedup = KEYS[4], dedup_ends = KEYS[5], meta = KEYS[6], waiting = KEYS[7] }
local FIRST_ENTRY, ENTRY_HEAD = 5, 3
local WINDOWS_A_CALL = 100
local sequence = ARGV[1]
local keep = { count = tonumber(ARGV[2]), age = tonumber(ARGV[3]), bytes = tonumber(ARGV[4]) }

local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end

local meta = redis.call('HMGET', topic.meta, 'clock', 'largest', 'published')
local now, ahead = tick(meta[1])

-- The id that a dedup value stands for, if its window is open.
local function first_with(value)
  local ends = redis.call('ZSCORE', topic.dedup_ends, value)
  return ends and tonumber(ends) > now and redis.call('HGET', topic.dedup, value)
end

local ids, published, largest, windows = {}, 0, tonumber(meta[2] or 0), 0
local at = FIRST_ENTRY
while at <= #ARGV do
  local value, texts = ARGV[at], tonumber(ARGV[at + 2])
  local first, last = at + ENTRY_HEAD, at + ENTRY_HEAD + texts - 1
  local id = value ~= '' and first_with(value)
  if not id then
    id = redis.call('XADD', STREAM, '*', unpack(ARGV, first, last))
    published = published + 1
    local size = 0
    for i = first, last do
      size = size + #ARGV[i]
    end
    largest = math.max(largest, size)
    if value ~= '' then
      redis.call('HSET', topic.dedup, value, id)
      redis.call('ZADD', topic.dedup_ends, now + tonumber(ARGV[at + 1]), value)
      windows = windows + 1
    end
  end
  ids[#ids + 1] = id
  at = last + 1
end

redis.call('HSET', topic.meta, 'published', (meta[3] or 0) + published)
if #ids > published then
  redis.call('HINCRBY', topic.meta, 'duplicates', #ids - published)
end
if largest > tonumber(meta[2] or 0) then
  redis.call('HSET', topic.meta, 'largest', largest)
end
if windows > 0 then
  remember(topic.meta, now)
  close_windows(topic, now, windows + WINDOWS_A_CALL)
end
let_in(topic, STREAM)
retain(topic, STREAM, keep, now - ahead)
return answer(CALL, sequence, ids)
