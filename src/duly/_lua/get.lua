--[[
get -- all that is known of one message.

KEYS     msgs      hash    id -> record
         leased    zset    id -> lease deadline
         leases    hash    id -> lease
         counts    hash    id -> what went wrong with it
         why       hash    id -> errors, reason
         dead      zset    id -> when it died
         done      zset    id -> when it was finished
         meta      hash    clock, paused, priorities, large
         waiting*  zset    id -> due, every priority
ARGV     digits    priorities of `waiting*`
         id        of the message
RETURNS  {} unknown | { now, place, score, record, counts, why, lease }; what is absent is ''
         place  waiting | leased | dead | done
KEEPS    writes nothing
]]
-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/waiting.lua
-- @include lib/place.lua
local digits, id = ARGV[1], ARGV[2]
local keys = {
  msgs = KEYS[1],
  leased = KEYS[2],
  leases = KEYS[3],
  counts = KEYS[4],
  why = KEYS[5],
  dead = KEYS[6],
  done = KEYS[7],
  meta = KEYS[8],
  waiting = waiting_by_priority(9, digits),
}

local record = redis.call('HGET', keys.msgs, id)
local place, score = place_of(keys, id, record)
if not place then
  return {}
end
return {
  tick(redis.call('HGET', keys.meta, 'clock')),
  place,
  score,
  record or '',
  redis.call('HGET', keys.counts, id) or '',
  redis.call('HGET', keys.why, id) or '',
  redis.call('HGET', keys.leases, id) or '',
}
