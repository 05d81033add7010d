--[[
purge -- remove the messages of one state, a bounded number per call.

KEYS     call, msgs, leased, leases, counts, why, expires, dead, done, dedup, dedup_ends, lanes, parked, wake,
         meta, waiting*
ARGV     sequence  text
         digits    text
         state     text    ready | delayed | leased | parked | dead | done
         limit     number  messages at the most, up to 1,000
         letters*  rows    id, score; none: all messages of the state
DRAINS   leases
RETURNS  { purged, left }
KEEPS    I1 I2 I6 I7 I9: lanes go on, and dedup values are free.
]]
-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/lease.lua
-- @include lib/leased.lua
-- @include lib/waiting.lua
-- @include lib/forget.lua
-- @include lib/lanes.lua
-- @include lib/row_bytes.lua
-- @include lib/wake.lua
-- @include lib/limits.lua

local now = tick(redis.call('HGET', keys.meta, 'clock'))

-- The sorted sets that hold messages of the state, and its range of scores.
local places, from, to = {}, '-inf', '+inf'
if state == 'ready' or state == 'delayed' then
  for _, waiting in ipairs(places_of_digits(keys.waiting, digits)) do
    places[#places + 1] = waiting.key
  end
  if state == 'ready' then
    to = string.format('%.0f', now)
  else
    from = string.format('(%.0f', now)
  end
else
  places = { keys[state] }
  if state == 'leased' then
    to = '(+inf' -- the encoding guard stays
  end
end

-- Returns the named messages that still have the score with which they were listed.
local function named_in(place)
  local found, seen = {}, {}
  for at = letters.first, letters.last, letters.stride do
    local id = letters.id(at)
    local score = not seen[id] and redis.call('ZSCORE', place, id)
    if score and tonumber(score) == tonumber(letters.score(at)) then
      found[#found + 1] = id
    end
    seen[id] = true
  end
  return found
end

local is_over = state == 'dead' or state == 'done'
local purged, left, freed, has_next = 0, 0, 0, false
for _, place in ipairs(places) do
  local members = letters.first <= letters.last and named_in(place)
    or redis.call('ZRANGEBYSCORE', place, from, to, 'LIMIT', 0, limit - purged)
  if state == 'leased' and #members > 0 then
    remove_leased(place, members)
  end
  for _, member in ipairs(members) do
    local id = state == 'parked' and id_of_parked(member) or member
    local record = redis.call('HGET', keys.msgs, id)
    local stored = state == 'leased' and redis.call('HGET', keys.leases, id)
    local lease = stored and read_lease(stored)
    free_dedup(keys, id, record)
    freed = freed + (lease and lease.size or record and #record or 0)
    if state == 'leased' then
      redis.call('HDEL', keys.leases, id)
    else
      if is_over then
        add_row_bytes(keys, state, 0 - redis.call('HSTRLEN', keys.why, id))
      end
      redis.call('ZREM', place, member)
    end
    has_next = leave_lane(keys, id, record, now, lease) or has_next
    forget(keys, id)
    purged = purged + 1
  end
  left = left + redis.call('ZCOUNT', place, from, to)
end
if purged == 0 then
  return answer({ 0, left }) -- stored: a late copy must not remove messages that are sent later
end
redis.call('HINCRBY', keys.meta, is_over and state .. '_bytes' or 'bytes', 0 - freed)
redis.call('HINCRBY', keys.meta, state == 'done' and 'done_trimmed' or 'purged', purged)
store_row_bytes(keys)
if has_next then
  leave_wake_token(keys.wake)
elseif not (state == 'leased' and announce_room(keys.wake, keys.meta, redis.call('HGET', keys.meta, 'limited'))) then
  take_wake_token_if_empty(keys.wake, keys.msgs, keys.meta)
end
return answer({ purged, left })
