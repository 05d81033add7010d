--[[
purge -- end the messages of one state, a bounded number a call.

KEYS     call        string  last call of the stream and its reply
         msgs        hash    id -> record
         leased      zset    id -> lease deadline
         leases      hash    id -> lease
         counts      hash    id -> what went wrong with it
         why         hash    id -> errors, reason
         expires     zset    id -> when a waiting message with a ttl is over
         dead        zset    id -> when it died
         done        zset    id -> when it was finished
         dedup       hash    dedup value -> id
         dedup_ends  zset    dedup value -> end of its window
         lanes       hash    key -> the id that its lane belongs to
         parked      zset    what is due and behind its lane's id
         wake        list    the wake token
         meta        hash    clock, limited
         waiting*    zset    id -> due, every priority
ARGV     sequence    of the call in its stream
         digits      priorities of `waiting*`
         state       ready | delayed | leased | parked | dead | done
         limit       messages at the most, up to 1,000
         letters*    id, score of each that is meant; none: whatever is in the state
RETURNS  { purged, left }
KEEPS    I1 I2 I6 I7 I9: lanes go on, dedup values are free.
]]
-- @include lib/call.lua
-- @include lib/clock.lua
-- @include lib/drain.lua
-- @include lib/record.lua
-- @include lib/lease.lua
-- @include lib/leased.lua
-- @include lib/waiting.lua
-- @include lib/forget.lua
-- @include lib/lanes.lua
-- @include lib/wake.lua
-- @include lib/limits.lua
local sequence, digits, state, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local keys = {
  call = KEYS[1],
  msgs = KEYS[2],
  leased = KEYS[3],
  leases = KEYS[4],
  counts = KEYS[5],
  why = KEYS[6],
  expires = KEYS[7],
  dead = KEYS[8],
  done = KEYS[9],
  dedup = KEYS[10],
  dedup_ends = KEYS[11],
  lanes = KEYS[12],
  parked = KEYS[13],
  wake = KEYS[14],
  meta = KEYS[15],
  waiting = waiting_by_priority(16, digits),
}

let_a_full_server_drain(keys.leases)
local repeated = answered(keys.call, sequence)
if repeated then
  return repeated
end

local now = tick(redis.call('HGET', keys.meta, 'clock'))

-- The sorted sets that hold the state, and the range of scores that belongs to it.
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
    to = '(+inf' -- the pillar stays
  end
end

-- Those that are named and are still where they were looked at.
local function meant_in(place)
  local found, seen = {}, {}
  for at = 5, #ARGV, 2 do
    local id = ARGV[at]
    local score = not seen[id] and redis.call('ZSCORE', place, id)
    if score and tonumber(score) == tonumber(ARGV[at + 1]) then
      found[#found + 1] = id
    end
    seen[id] = true
  end
  return found
end

local purged, left, freed, has_next = 0, 0, 0, false
for _, place in ipairs(places) do
  local members = #ARGV > 4 and meant_in(place)
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
      redis.call('ZREM', place, member)
    end
    has_next = leave_lane(keys, id, record, now, lease) or has_next
    forget(keys, id)
    purged = purged + 1
  end
  left = left + redis.call('ZCOUNT', place, from, to)
end
if purged == 0 then
  return answer(keys.call, sequence, { 0, left }) -- or a late copy would end what is sent meanwhile
end
local bytes = { dead = 'dead_bytes', done = 'done_bytes' }
redis.call('HINCRBY', keys.meta, bytes[state] or 'bytes', 0 - freed)
redis.call('HINCRBY', keys.meta, state == 'done' and 'done_trimmed' or 'purged', purged)
if has_next then
  leave_token(keys.wake)
elseif not (state == 'leased' and announce_room(keys.wake, keys.meta, redis.call('HGET', keys.meta, 'limited'))) then
  take_token_if_empty(keys.wake, keys.msgs, keys.meta)
end
return answer(keys.call, sequence, { purged, left })
