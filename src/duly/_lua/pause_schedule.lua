--[[
pause_schedule -- a schedule sends nothing until resume_schedule. Slots that come meanwhile are left out.

KEYS     call       string  last call of the stream and its reply
         msgs       hash    id -> record
         schedules  hash    name -> row
         slots      zset    name -> when to look at it next
         wake       list    the wake token
         meta       hash    clock, slot
ARGV     sequence   of the call in its stream
         name       of the schedule
RETURNS  1  it is paused
         0  it was not there
KEEPS    I1 I6 I9
]]
-- @include lib/call.lua
-- @include lib/drain.lua
-- @include lib/schedule.lua
local CALL, MSGS, SCHEDULES, SLOTS, WAKE, META = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local sequence, name = ARGV[1], ARGV[2]

let_a_full_server_drain(META)
local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end
local row = redis.call('HGET', SCHEDULES, name)
local created, after, last = read_head(row)
if not created then
  return answer(CALL, sequence, 0)
end
redis.call('HSET', SCHEDULES, name, written_head(created, after, last, 1) .. plan_of(row))
look_at(SLOTS, META, name, false)
take_token_if_over(WAKE, MSGS, SLOTS)
return answer(CALL, sequence, 1)
