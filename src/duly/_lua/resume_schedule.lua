--[[
resume_schedule -- resume a paused schedule. Its runs count from now.

KEYS     call, schedules, slots, wake, meta
ARGV     sequence  text
         name      text    of the schedule
DRAINS   meta
RETURNS  1  it is not paused any more
         0  there is no such schedule
KEEPS    I1 I6
]]
-- @include lib/clock.lua
-- @include lib/wake.lua
-- @include lib/schedule.lua

local row = redis.call('HGET', SCHEDULES, name)
local created, _, last, paused = read_head(row)
if not created then
  return answer(0)
end
if paused ~= 0 then
  local now = tick(redis.call('HGET', META, 'clock'))
  store_clock(META, now)
  redis.call('HSET', SCHEDULES, name, written_head(created, now, last, 0) .. plan_of(row))
  set_next_run(SLOTS, META, name, now)
  leave_wake_token(WAKE)
end
return answer(1)
