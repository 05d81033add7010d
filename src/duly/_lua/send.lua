--[[
send -- store messages, due now or later, that need no look at what is there and have no ttl.

Ids are made by the client and never used again, so a message is new unless the call is a repeat.

KEYS     call       string  last call of the stream and its reply
         msgs       hash    id -> record
         wake       list    the wake token
         stats      hash    counters
         meta       hash    clock, paused, priorities, large
         waiting*   zset    id -> due, one key a digit of `digits`
ARGV     sequence   of the call in its stream
         digits     priorities of `waiting*`
         messages*  id, part, when: 0 now | +us from now | =us since the epoch
RETURNS  { now }    all are stored
KEEPS    I1 I2 I3 I6
]]
-- @include lib/call.lua
-- @include lib/clock.lua
-- @include lib/waiting.lua
-- @include lib/wake.lua
-- @include lib/store.lua
local CALL, MSGS, WAKE, STATS, META = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local FIRST_WAITING, FIRST_MESSAGE, STRIDE = 6, 3, 3
local sequence, digits = tonumber(ARGV[1]), ARGV[2]

local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end

local meta = read_meta(META)
local now = tick(meta.clock)
local offsets = {}
for at = FIRST_MESSAGE, #ARGV, STRIDE do
  offsets[#offsets + 1] = at
end
local keys = {
  msgs = MSGS, wake = WAKE, stats = STATS, meta = META, waiting = waiting_by_priority(FIRST_WAITING, digits),
}
store(keys, meta, now, offsets, {})
redis.call('HINCRBY', STATS, 'sent', #offsets)
return answer(CALL, sequence, { now })
