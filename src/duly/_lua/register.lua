--[[
register -- store in the registry which queue a schedule belongs to.

KEYS     call, schedules
ARGV     sequence  text
         name      text    of the schedule
         queue     text    of the schedule
DRAINS   schedules: a process declares its schedules when it starts, and must be able to start
RETURNS  the entry that it replaces, '' for none
KEEPS    I6
]]
-- @include lib/clock.lua

local now = tick(false)
local replaced = redis.call('HGET', SCHEDULES, name) or ''
redis.call('HSET', SCHEDULES, name, struct.pack('<dc0', now, queue))
return answer(replaced)
