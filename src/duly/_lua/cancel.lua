--[[
cancel -- end a message that waits or is dead; one that is being handled only if the caller says so.

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
         awaited     zset    id -> until when somebody waits for its end
         ends        stream  the ends that were awaited
         waiting*    zset    id -> due, every priority
ARGV     sequence    of the call in its stream
         digits      priorities of `waiting*`
         id          of the message
         running     1: also a message that is leased; its holder loses the lease
RETURNS  1  ended by this call
         0  unknown, over, or leased and `running` is not 1
KEEPS    I1 I2 I5 I6 I7 I9: a holder that loses the message finds its lease lost; the dedup value is free.
]]
-- @include lib/call.lua
-- @include lib/clock.lua
-- @include lib/drain.lua
-- @include lib/record.lua
-- @include lib/lease.lua
-- @include lib/leased.lua
-- @include lib/waiting.lua
-- @include lib/forget.lua
-- @include lib/place.lua
-- @include lib/wake.lua
-- @include lib/limits.lua
-- @include lib/ends.lua
local sequence, digits, id, takes_leased = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
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
  awaited = KEYS[16],
  ends = KEYS[17],
  waiting = waiting_by_priority(18, digits),
}

let_a_full_server_drain(keys.leases)
local repeated = answered(keys.call, sequence)
if repeated then
  return repeated
end

local record = redis.call('HGET', keys.msgs, id)
local place, _, key, member = place_of(keys, id, record)
-- A lease that ran out counts as long as no claim took the message over: its holder may still settle it.
if not place or place == 'done' or (place == 'leased' and not takes_leased) then
  return answer(keys.call, sequence, 0) -- or a late copy could end a message that uses the id again
end
local size, lease = record and #record or 0, nil
if place == 'leased' then
  local stored = redis.call('HGET', keys.leases, id)
  lease = stored and read_lease(stored)
  size = lease and lease.size or size
  remove_leased(keys.leased, { id })
  redis.call('HDEL', keys.leases, id)
else
  redis.call('ZREM', key, member)
end
free_dedup(keys, id, record)
redis.call('HINCRBY', keys.meta, place == 'dead' and 'dead_bytes' or 'bytes', 0 - size)
forget(keys, id)
redis.call('HINCRBY', keys.meta, 'cancelled', 1)
announce_ends(keys, { id })
local meta = redis.call('HMGET', keys.meta, 'clock', 'limited')
if leave_lane(keys, id, record, tick(meta[1]), lease) then
  leave_token(keys.wake)
elseif not (place == 'leased' and announce_room(keys.wake, keys.meta, meta[2])) then
  take_token_if_empty(keys.wake, keys.msgs, keys.meta)
end
return answer(keys.call, sequence, 1)
