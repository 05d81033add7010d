--[[
resume_schedule -- a paused schedule goes on: its slots count from now.

KEYS     call       string  last call of the stream and its reply
         schedules  hash    name -> row
         slots      zset    name -> when to look at it next
         wake       list    the wake token
         meta       hash    clock, slot
ARGV     sequence   of the call in its stream
         name       of the schedule
RETURNS  1  it goes on
         0  it was not there
KEEPS    I1 I6
]]
-- @include lib/call.lua
-- @include lib/clock.lua
-- @include lib/drain.lua
-- @include lib/wake.lua
-- @include lib/schedule.lua
local CALL, SCHEDULES, SLOTS, WAKE, META = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local sequence, name = ARGV[1], ARGV[2]

let_a_full_server_drain(META)
local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end
local row = redis.call('HGET', SCHEDULES, name)
local created, _, last, paused = read_head(row)
if not created then
  return answer(CALL, sequence, 0)
end
if paused ~= 0 then
  local now = tick(redis.call('HGET', META, 'clock'))
  remember(META, now)
  redis.call('HSET', SCHEDULES, name, written_head(created, now, last, 0) .. plan_of(row))
  look_at(SLOTS, META, name, now)
  leave_token(WAKE)
end
return answer(CALL, sequence, 1)
