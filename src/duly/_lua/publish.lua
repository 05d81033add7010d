--[[
publish -- add entries to the stream of a topic, and keep it within its bounds.

Whoever waits for entries is woken by the stream itself. Publishes that waited for their time and are due enter before
these: the stream has the order of time.

KEYS     call        string  last call of the stream of calls and its reply
         stream      stream  the entries
         msgs        hash    id -> record, of publishes that wait for their time
         dedup       hash    dedup value -> id
         dedup_ends  zset    dedup value -> end of its window
         dead        zset    id -> when it died, of those that could not enter
         why         hash    id -> reason
         meta        hash    clock, largest, counters
         waiting*    zset    id -> due, of publishes that wait for their time
ARGV     sequence    of the call in its stream of calls
         keep_count  entries kept; -1: any number
         keep_age    microseconds they are kept; -1: for ever
         keep_bytes  bytes the stream may take; -1: any number
         plain       1: every entry is one text, its JSON body | 0: see entries
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
local topic = {
  msgs = KEYS[3],
  dedup = KEYS[4],
  dedup_ends = KEYS[5],
  dead = KEYS[6],
  why = KEYS[7],
  meta = KEYS[8],
  waiting = KEYS[9],
}
local FIRST_ENTRY, ENTRY_HEAD = 6, 3
local WINDOWS_A_CALL, MOST_TEXTS = 100, 7000 -- more do not fit on the stack
local sequence, is_plain = ARGV[1], ARGV[5] == '1'
local keep = { count = tonumber(ARGV[2]), age = tonumber(ARGV[3]), bytes = tonumber(ARGV[4]) }

local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end

-- What is wrong with an entry, or nil.
local function problem_of_entries()
  local at = FIRST_ENTRY
  while at <= #ARGV do
    local texts = tonumber(ARGV[at + 2])
    if texts > MOST_TEXTS then
      return 'ERR an entry has ' .. texts / 2 .. ' fields: at most ' .. MOST_TEXTS / 2 .. ' are possible'
    end
    at = at + ENTRY_HEAD + texts
  end
  return nil
end

local problem = not is_plain and problem_of_entries()
if problem then -- before anything is written
  return redis.error_reply(problem)
end
-- A full server refuses this, which changes nothing, and with it the call: all that follows is written or nothing is.
redis.call('ZADD', topic.waiting, 'XX', 0, '')
let_in(topic, STREAM)
local meta = redis.call('HMGET', topic.meta, 'clock', 'largest', 'published')
local now, ahead = tick(meta[1])

-- The id that a dedup value stands for, if its window is open.
local function first_with(value)
  local ends = redis.call('ZSCORE', topic.dedup_ends, value)
  return ends and tonumber(ends) > now and redis.call('HGET', topic.dedup, value)
end

local ids, published, largest, windows = {}, 0, tonumber(meta[2] or 0), 0

local function publish_plain()
  local add = redis.call
  for at = FIRST_ENTRY, #ARGV do
    local body = ARGV[at]
    published = published + 1
    ids[published] = add('XADD', STREAM, '*', 'body', body)
    if #body > largest then
      largest = #body
    end
  end
end

-- The texts of an entry, and their size.
local function texts_of(first, last)
  local texts, size = {}, 0
  for at = first, last do
    texts[#texts + 1], size = ARGV[at], size + #ARGV[at]
  end
  return texts, size
end

local function publish_each()
  local at = FIRST_ENTRY
  while at <= #ARGV do
    local value, first = ARGV[at], at + ENTRY_HEAD
    local last = first + tonumber(ARGV[at + 2]) - 1
    local id = value ~= '' and first_with(value)
    if not id then
      local texts, size = texts_of(first, last)
      id = redis.call('XADD', STREAM, '*', unpack(texts))
      published = published + 1
      largest = math.max(largest, size)
      if value ~= '' then
        open_window(topic, now, id, value, tonumber(ARGV[at + 1]))
        windows = windows + 1
      end
    end
    ids[#ids + 1] = id
    at = last + 1
  end
end

if is_plain then
  publish_plain()
else
  publish_each()
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
retain(topic, STREAM, keep, now - ahead)
return answer(CALL, sequence, ids)
