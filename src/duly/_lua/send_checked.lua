--[[
send_checked -- store messages that depend on what is there: bounds, ttl, dedup, ids of the caller's own.

KEYS     call        string  last call of the stream and its reply
         msgs        hash    id -> record
         expires     zset    id -> when a waiting message with a ttl is over
         leased      zset    id -> lease deadline
         counts      hash    id -> what went wrong with it
         why         hash    id -> errors, reason
         dead        zset    id -> when it died
         done        zset    id -> when it was finished
         dedup       hash    dedup value -> id
         dedup_ends  zset    dedup value -> end of its window
         lanes       hash    key -> the id that its lane belongs to
         parked      zset    what is due and behind its lane's id
         wake        list    the wake token
         meta        hash    clock, paused, priorities, large, keyed, limited
         waiting*    zset    id -> due, every priority
ARGV     sequence    of the call in its stream
         digits      priorities of `waiting*`
         max_length  live messages at the most; -1: any number
         max_bytes   bytes of live messages at the most; -1: any number
         on_full     each: refuse what does not fit | all: refuse the call | drop: drop the oldest waiting
         messages*   id, part, when: 0 now | +us from now | =us since the epoch
RETURNS  { now, position, outcome, id ... } for the messages that were not simply stored:
         1  duplicate: `id` was there first
         2  full: not stored
         3  replaced: `id` was waiting and has the new body and due time
KEEPS    I1 I2 I3 I6 I7: guard, then write; one message is stored once.
]]
-- @include lib/call.lua
-- @include lib/sending.lua
local FIRST_KEY, FIRST_BOUND, FIRST_MESSAGE = 2, 3, 6
local CALL, sequence, digits = KEYS[1], ARGV[1], ARGV[2]

local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end

local plan = plan_sends(sending_keys(FIRST_KEY, digits), FIRST_MESSAGE, #ARGV, bounds_from(FIRST_BOUND))
local reply = { plan.now }
if plan.is_refused then
  sweep(plan)
  add_refusals(reply, plan)
else
  carry_out(plan)
  add_outcomes(reply, plan, 0)
end
return answer(CALL, sequence, reply)
