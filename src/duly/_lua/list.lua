--[[
list -- return a page of the messages in one state.

KEYS     msgs, leased, leases, counts, why, dead, done, parked, meta, waiting*
ARGV     digits          text
         state           text    ready | delayed | leased | parked | dead | done
         limit           number  messages at the most
         after_id        text    last message of the page before; '': the first page
         after_score     number  its score, in case it has moved; '': the script reads it
         after_priority  number  its priority, for ready, delayed and parked
         after_key       text    its key, for parked
         order           text    newest: dead and done, the last ones first | '' or absent
RETURNS  { now, is_last, id, score, record, counts, why, lease ... }; '' if absent
         -1  after_id is not in this state and no score was given
KEEPS    writes nothing; ordered by priority for ready and delayed, by key for parked, then by score and id; on request
         the newest first
]]
-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/leased.lua
-- @include lib/lanes.lua
local BYTES_PER_CALL = 4194304

local meta = redis.call('HMGET', keys.meta, 'clock', 'priorities')
local now = tick(meta[1])
local is_waiting = state == 'ready' or state == 'delayed'

-- The sorted sets to read, in order.
local places = {}
if is_waiting then
  for digit in string.gmatch(meta[2] or '0', '%d') do
    places[#places + 1] = { key = keys.waiting[tonumber(digit)], priority = tonumber(digit) }
  end
else
  places = { { key = keys[state], priority = 0 } }
  after_priority = state == 'parked' and after_priority or 0
end

-- Returns the member of `parked` after which the page begins, or nil if it is not there.
local function last_parked()
  if after_score then
    return member_of(after_key, after_priority, after_score, after_id)
  end
  local record = redis.call('HGET', keys.msgs, after_id)
  local key = not flaw_of(record) and key_of(record)
  local member = key and parked_member(key, record, after_id)
  return member and redis.call('ZSCORE', keys.parked, member) and member or nil
end

if after_id ~= '' and not after_score and state ~= 'parked' then
  for _, place in ipairs(places) do
    local score = redis.call('ZSCORE', place.key, after_id)
    if score then
      after_score, after_priority = tonumber(score), place.priority
    end
  end
  if not after_score then
    return -1
  end
end

-- Whether a comes after b in byte order. Lua itself compares by the server's locale.
local function is_behind(a, b)
  for i = 1, math.min(#a, #b) do
    local one, other = string.byte(a, i), string.byte(b, i)
    if one ~= other then
      return one > other
    end
  end
  return #a > #b
end

-- Returns the rank of the first member after (after_score, after_id), which may be gone. Members with the same score
-- are in byte order, so a binary search finds the rank.
local function rank_behind(key)
  local score = string.format('%.0f', after_score)
  local low = redis.call('ZCOUNT', key, '-inf', '(' .. score)
  local high = redis.call('ZCOUNT', key, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if not is_behind(redis.call('ZRANGE', key, middle, middle)[1], after_id) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local reply, bytes, found, is_last = { now, 1 }, 0, 0, true

local function add(id, score)
  local record = redis.call('HGET', keys.msgs, id) or ''
  bytes = bytes + #record
  if found == limit or (bytes > BYTES_PER_CALL and found > 0) then
    is_last = false
    return
  end
  found = found + 1
  for _, value in ipairs({
    id,
    tonumber(score),
    record,
    redis.call('HGET', keys.counts, id) or '',
    redis.call('HGET', keys.why, id) or '',
    redis.call('HGET', keys.leases, id) or '',
  }) do
    reply[#reply + 1] = value
  end
end

local function add_parked()
  local from = '-'
  if after_id ~= '' then
    local last = last_parked()
    if not last then
      return -1
    end
    from = '(' .. last
  end
  for _, member in ipairs(redis.call('ZRANGEBYLEX', keys.parked, from, '+', 'LIMIT', 0, limit + 1)) do
    if is_last then
      local id = id_of_parked(member)
      local record = redis.call('HGET', keys.msgs, id)
      add(id, flaw_of(record) and 0 or due_of(record))
    end
  end
  reply[2] = is_last and 1 or 0
  return reply
end

-- Adds the members of a sorted set from its end to its beginning.
local function add_newest(key)
  local last = redis.call('ZCARD', key) - 1
  if after_id ~= '' then
    last = rank_behind(key) - 1
    if last >= 0 and redis.call('ZRANGE', key, last, last)[1] == after_id then
      last = last - 1
    end
  end
  local rows = last >= 0 and redis.call('ZRANGE', key, math.max(0, last - limit), last, 'WITHSCORES') or {}
  for i = #rows - 1, 1, -2 do
    if is_last then
      add(rows[i], rows[i + 1])
    end
  end
  reply[2] = is_last and 1 or 0
  return reply
end

if state == 'parked' then
  return add_parked()
end
if order == 'newest' then
  return add_newest(places[1].key)
end
for _, place in ipairs(places) do
  local is_over = after_id ~= '' and place.priority > after_priority
  if is_last and not is_over then
    local due = is_waiting and redis.call('ZCOUNT', place.key, '-inf', string.format('%.0f', now))
    local first = state == 'delayed' and due or 0
    local last = state == 'ready' and due - 1 or -1
    if after_id ~= '' and place.priority == after_priority then
      first = math.max(first, rank_behind(place.key))
    end
    last = last < 0 and first + limit or math.min(last, first + limit)
    if state ~= 'ready' or due > first then
      local rows = redis.call('ZRANGE', place.key, first, last, 'WITHSCORES')
      for i = 1, #rows, 2 do
        if is_last and not (state == 'leased' and rows[i] == ENCODING_GUARD) then
          add(rows[i], rows[i + 1])
        end
      end
    end
  end
end
reply[2] = is_last and 1 or 0
return reply
