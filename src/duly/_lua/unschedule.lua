--[[
unschedule -- remove a schedule. What it has sent stays.

KEYS     call, msgs, schedules, slots, wake, meta
ARGV     sequence  text
         name      text    of the schedule
DRAINS   meta
RETURNS  1  removed
         0  it was not there
KEEPS    I1 I6 I9
]]
-- @include lib/schedule.lua

local removed = redis.call('HDEL', SCHEDULES, name)
look_at(SLOTS, META, name, false)
take_token_if_over(WAKE, MSGS, SLOTS)
return answer(removed)
