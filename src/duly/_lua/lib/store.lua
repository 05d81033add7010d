-- Stores new messages. The caller has made all checks.

-- @include lib/record.lua
-- @include lib/large.lua
-- @include lib/limits.lua
-- @include lib/waiting.lua

local function read_meta(key)
  local stored = redis.call('HMGET', key, 'clock', 'paused', 'priorities', 'large', 'keyed', 'limited', 'point')
  return {
    clock = stored[1],
    paused = stored[2],
    priorities = stored[3] or '0',
    large = stored[4],
    keyed = stored[5],
    limited = stored[6],
    point = stored[7],
  }
end

local function due_at(clock, ahead, when)
  local us = tonumber(string.sub(when, 2))
  if string.byte(when) == 43 then -- '+'
    return clock + us
  end
  return math.max(clock, us + ahead)
end

-- Stores the messages whose rows begin at the positions `offsets` of ARGV. `renamed` has other ids for some of them.
-- Each gets its own tick of the clock, so that arrivals have a strict order. A full server refuses the first write.
-- `on_stored(id, record, at)` is called for each message.
local function store(keys, meta, now, ahead, offsets, renamed, on_stored)
  local clock, earliest, size, largest = now - 1, math.huge, 0, 0
  local records, scores, in_use, has_keys = {}, {}, meta.priorities, false
  local byte, pack = string.byte, struct.pack
  store_clock(keys.meta, now + #offsets - 1)
  for i, at in ipairs(offsets) do
    local id, part, when = renamed[at] or messages.id(at), messages.part(at), messages.when(at)
    clock = clock + 1
    local due = when == '0' and clock or due_at(clock, ahead, when)
    local flags, priority = byte(part, 2, 3)
    has_keys = has_keys or has(flags, FLAG_KEY)
    local record = pack('<dd', clock, due) .. part -- 'c0' would copy it byte by byte
    records[2 * i - 1], records[2 * i] = id, record
    local places = scores[priority]
    if not places then
      places = {}
      scores[priority] = places
      in_use = with_priority(in_use, priority)
    end
    places[#places + 1] = due
    places[#places + 1] = id
    if on_stored then
      on_stored(id, record, at)
    end
    size = size + #record
    if #record > largest then
      largest = #record
    end
    if due < earliest then
      earliest = due
    end
  end
  redis.call('HSET', keys.msgs, unpack(records))
  local is_next = earliest <= clock
  for priority, places in pairs(scores) do
    local waiting = keys.waiting[priority]
    redis.call('ZADD', waiting, unpack(places))
    is_next = is_next or tonumber(redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')[2]) >= earliest
  end
  if in_use ~= meta.priorities then
    redis.call('HSET', keys.meta, 'priorities', in_use)
  end
  if largest > LARGE and not meta.large then
    redis.call('HSET', keys.meta, 'large', 1)
  end
  if has_keys and not meta.keyed then
    redis.call('HSET', keys.meta, 'keyed', 1)
  end
  redis.call('HINCRBY', keys.meta, 'bytes', size)
  if is_next and not meta.paused and not is_limited(meta.limited, clock) then
    leave_wake_token(keys.wake)
  end
end
