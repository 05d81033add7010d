--[[
finish -- finish messages that the caller still owns: with a key, or on a queue that keeps them.

KEYS     call        string  last call of the stream and its reply
         msgs        hash    id -> record
         leased      zset    id -> lease deadline
         leases      hash    id -> lease
         counts      hash    id -> what went wrong with it
         why         hash    id -> errors, reason, timeline, result
         done        zset    id -> when it was finished
         lanes       hash    key -> the id that its lane belongs to
         parked      zset    what is due and behind its lane's id
         wake        list    the wake token
         meta        hash    clock, limited
         awaited     zset    id -> until when somebody waits for its end
         ends        stream  the ends that were awaited
         waiting*    zset    id -> due, every priority
ARGV     sequence    of the call in its stream
         digits      priorities of `waiting*`
         keeps       1: finished messages are kept in `done` | 0: they are gone
         keep_count  finished messages kept; -1: any number
         keep_age    microseconds they are kept; -1: for ever
         keep_bytes  bytes of them kept; -1: any number
         settles*    id, fence, result: '' for none
RETURNS  { position ... } of those whose lease was lost
KEEPS    I1 I2 I5 I6 I7 I9: a stale fence changes nothing; a finished message hands its lane on.
]]
-- @include lib/call.lua
-- @include lib/clock.lua
-- @include lib/drain.lua
-- @include lib/waiting.lua
-- @include lib/finish.lua
local FIRST_SETTLE, STRIDE = 7, 3
local sequence, digits, keeps = ARGV[1], ARGV[2], ARGV[3] == '1'
local keys = {
  call = KEYS[1],
  msgs = KEYS[2],
  leased = KEYS[3],
  leases = KEYS[4],
  counts = KEYS[5],
  why = KEYS[6],
  done = KEYS[7],
  lanes = KEYS[8],
  parked = KEYS[9],
  wake = KEYS[10],
  meta = KEYS[11],
  awaited = KEYS[12],
  ends = KEYS[13],
  waiting = waiting_by_priority(14, digits),
}

let_a_full_server_drain(keys.leases)
local repeated = answered(keys.call, sequence)
if repeated then
  return repeated
end
local held, lost = held_by_caller(keys.leases, FIRST_SETTLE, STRIDE)
if #held.ids == 0 then
  return lost
end

local now = tick(redis.call('HGET', keys.meta, 'clock'))
local results = {}
for i, at in ipairs(held.ats) do
  results[i] = ARGV[at + 2]
end
remember(keys.meta, now)
finish(keys, held, results, keeps and keep_from(4), now)
return answer(keys.call, sequence, lost)
