--[[
unregister -- forget where a schedule was, unless it was noted anew meanwhile.

KEYS     call, schedules
ARGV     sequence  text
         name      text    of the schedule
         seen      text    the entry that the caller goes by
DRAINS   schedules
RETURNS  1  forgotten
         0  it was not there, or is another by now
KEEPS    I6
]]

local removed = 0
if redis.call('HGET', SCHEDULES, name) == seen then
  removed = redis.call('HDEL', SCHEDULES, name)
end
return answer(removed)
