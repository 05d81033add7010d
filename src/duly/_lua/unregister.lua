--[[
unregister -- remove a schedule from the registry, unless its entry has changed.

KEYS     call, schedules
ARGV     sequence  text
         name      text    of the schedule
         seen      text    the entry as the caller read it
DRAINS   schedules
RETURNS  1  removed
         0  there is no such entry, or it has changed
KEEPS    I6
]]

local removed = 0
if redis.call('HGET', SCHEDULES, name) == seen then
  removed = redis.call('HDEL', SCHEDULES, name)
end
return answer(removed)
