--[[
delete -- the queue itself, with all that is in it and all that it counted.

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
         schedules   hash    name -> schedule
         slots       zset    name of a schedule -> when to look at it
         wake        list    the wake token
         meta        hash    clock, paused, priorities, large
         awaited     zset    id -> until when somebody waits for its end
         ends        stream  the ends that were awaited
         waiting*    zset    id -> due, every priority
ARGV     sequence    of the call in its stream
RETURNS  how many keys there were
KEEPS    I6 I9
]]
-- @include lib/call.lua
local CALL, FIRST_KEY = KEYS[1], 2
local sequence = ARGV[1]

local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end
-- @only queue
local removed = redis.call('UNLINK', unpack(KEYS, FIRST_KEY))
-- @end
-- @only group
-- @include lib/leased.lua
local GROUP = group_of(KEYS[FIRST_KEY])
local removed = redis.call('UNLINK', unpack(KEYS, FIRST_KEY, #KEYS - TOPIC_KEYS))
redis.pcall('XGROUP', 'DESTROY', STREAM, GROUP)
redis.call('HDEL', TOPIC_META, 'group:' .. GROUP, 'missed:' .. GROUP)
if redis.call('TYPE', STREAM).ok == 'stream' then
  ack_entries(GROUP, { '0-1' }) -- others may have waited only for this group
end
-- @end
return answer(CALL, sequence, removed)
