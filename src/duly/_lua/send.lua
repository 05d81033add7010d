--[[
send -- store messages of one priority that need no check against stored ones.

Clients make ids and never use one twice, so a message is new unless the call is a repeat. This script is called most,
often for a single message. So it creates no function and reads nothing twice. The script send_checked stores messages
with a ttl, a dedup value or an id chosen by the caller, messages of several priorities, and those of bounded queues.

KEYS     call, msgs, parked, wake, meta, history, waiting
ARGV     sequence   text
         digits     text    the priority
         has_keys   flag    1: some messages have a key | 0: none has
         messages*  rows    id, part, when: 0 now | +us from now | =us since the epoch
REPEATS  with the same command that stores the number of the call: the reply is always 1
RETURNS  1  all are stored
KEEPS    I1 I2 I3 I6 I9
]]
local STORED = '\1' -- the reply 1, packed
local LARGE = 4096 -- see lib/large.lua
local PLUS = 43
local MINUTE_US = 60000000

-- As in lib/call.lua, but with one command: the reply is always 1. A full server refuses this first write. Even then
-- the script answers a repeat.
local before = redis.pcall('SET', CALL, sequence .. STORED, 'PX', kept_ms, 'GET')
if before and type(before) == 'table' then
  local stored = redis.call('GET', CALL)
  if stored and string.sub(stored, 1, 8) == sequence then
    redis.call('PEXPIRE', CALL, kept_ms)
    return 1
  end
  return before
end
if before then
  local last, this = struct.unpack('<d', before), struct.unpack('<d', sequence)
  if this <= last then
    redis.call('SET', CALL, before, 'PX', kept_ms)
    if this < last then
      return redis.error_reply('OVERTAKEN call ' .. this .. ' of a stream that is at ' .. last)
    end
    return 1
  end
end

-- As in lib/clock.lua. Each message gets its own tick, so that arrivals have a strict order.
local meta =
  redis.call('HMGET', META, 'clock', 'paused', 'priorities', 'large', 'sent', 'bytes', 'limited', 'keyed', 'point')
local time = redis.call('TIME')
local now, ahead = time[1] * 1000000 + time[2], 0
if meta[1] and tonumber(meta[1]) >= now then
  ahead = meta[1] + 1 - now
  now = meta[1] + 1
end

-- The first send of a minute takes a point of the history. The backlog is unknown if other priorities are in use.
local until_point = (meta[9] or 0) - now
if until_point <= 0 or until_point > MINUTE_US then
  -- @include lib/points.lua
  -- @include lib/backlog.lua
  local depth, oldest_age = -1, -1
  if digits == (meta[3] or '0') then
    depth, oldest_age = backlog({ parked = PARKED, waiting = { WAITING } }, now)
  end
  take_point(HISTORY, META, now, meta[9], depth, oldest_age)
end

local records, places, n = {}, {}, 0
local clock, earliest, size, largest = now - 1, math.huge, 0, 0
for at = messages.first, messages.last, messages.stride do
  local id, when = messages.id(at), messages.when(at)
  clock = clock + 1
  local due = clock
  if when ~= '0' then
    local us = tonumber(string.sub(when, 2))
    due = string.byte(when) == PLUS and clock + us or math.max(clock, us + ahead)
  end
  local record = struct.pack('<dd', clock, due) .. messages.part(at) -- 'c0' would copy it byte by byte
  n = n + 2
  records[n - 1], records[n] = id, record
  places[n - 1], places[n] = due, id
  size = size + #record
  if #record > largest then
    largest = #record
  end
  if due < earliest then
    earliest = due
  end
end

local problem = redis.pcall('HSET', MSGS, unpack(records))
if type(problem) ~= 'table' then
  problem = redis.pcall('ZADD', WAITING, unpack(places))
end
if type(problem) == 'table' then -- a key has another type: store nothing, not even the number of the call
  for i = 1, n, 2 do
    redis.pcall('HDEL', MSGS, records[i])
  end
  redis.call('DEL', CALL)
  if before then
    redis.call('SET', CALL, before, 'PX', kept_ms)
  end
  return problem
end
redis.call('HSET', META, 'clock', clock, 'sent', (meta[5] or 0) + n / 2, 'bytes', (meta[6] or 0) + size)
if largest > LARGE and not meta[4] then
  redis.call('HSET', META, 'large', 1)
end

if has_keys and not meta[8] then
  redis.call('HSET', META, 'keyed', 1)
end

local in_use = meta[3] or '0' -- the priorities in use, highest first
if not string.find(in_use, digits, 1, true) then
  local higher = string.gsub(in_use, '[0-' .. digits .. ']', '')
  redis.call('HSET', META, 'priorities', higher .. digits .. string.sub(in_use, #higher + 1))
end

-- Wake a consumer if a message is due, or due before all others. A paused or limited queue wakes none: see
-- lib/limits.lua.
local is_limited = meta[7] and (meta[7] == '0' or tonumber(meta[7]) > clock)
if not meta[2] and not is_limited then
  local is_next = earliest <= clock or tonumber(redis.call('ZRANGE', WAITING, 0, 0, 'WITHSCORES')[2]) >= earliest
  if is_next and redis.call('LLEN', WAKE) == 0 then
    redis.call('RPUSH', WAKE, 1)
  end
end
return 1
