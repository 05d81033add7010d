--[[
unschedule -- remove a schedule. Messages that it has sent stay.

KEYS     call, msgs, schedules, slots, wake, meta
ARGV     sequence  text
         name      text    of the schedule
DRAINS   meta
RETURNS  1  removed
         0  there is no such schedule
KEEPS    I1 I6 I9
]]
-- @include lib/schedule.lua

local removed = redis.call('HDEL', SCHEDULES, name)
set_next_run(SLOTS, META, name, false)
take_wake_token_if_unused(WAKE, MSGS, SLOTS)
return answer(removed)
