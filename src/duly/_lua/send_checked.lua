--[[
send_checked -- store messages after checks against stored ones: bounds, ttl, dedup, ids chosen by the caller.

KEYS     call, msgs, expires, leased, counts, why, dead, done, dedup, dedup_ends, lanes, parked, wake, meta,
         history, waiting*
ARGV     sequence    text
         digits      text
         max_length  number  live messages at the most; -1: any number
         max_bytes   number  bytes of live messages at the most; -1: any number
         on_full     text    each: refuse those that do not fit | all: refuse the call | drop: drop the oldest waiting
         messages*   rows    id, part, when: 0 now | +us from now | =us since the epoch
RETURNS  { now, position, outcome, id ... } for messages that were not stored as new:
         1  duplicate: `id` is the earlier message
         2  full: not stored
         3  replaced: `id` was waiting, and has the new body and due time
KEEPS    I1 I2 I3 I6 I7 I9: all checks come before the first write; one message is stored once.
]]
-- @include lib/send_plan.lua

local bounds = { length = max_length, bytes = max_bytes, on_full = on_full }
local plan = plan_sends(keys, messages.first, messages.last, bounds)
local reply = { plan.now }
if plan.is_refused then
  sweep(plan)
  add_refusals(reply, plan)
else
  carry_out(plan)
  add_outcomes(reply, plan, 0)
end
return answer(reply)
