--[[
pause_schedule -- pause a schedule until resume_schedule. Runs in the meantime are skipped.

KEYS     call, msgs, schedules, slots, wake, meta
ARGV     sequence  text
         name      text    of the schedule
DRAINS   meta
RETURNS  1  it is paused
         0  there is no such schedule
KEEPS    I1 I6 I9
]]
-- @include lib/schedule.lua

local row = redis.call('HGET', SCHEDULES, name)
local created, after, last = read_head(row)
if not created then
  return answer(0)
end
redis.call('HSET', SCHEDULES, name, written_head(created, after, last, 1) .. plan_of(row))
set_next_run(SLOTS, META, name, false)
take_wake_token_if_unused(WAKE, MSGS, SLOTS)
return answer(1)
