--[[
register -- note in the registry which queue a schedule belongs to.

KEYS     call, schedules
ARGV     sequence  text
         name      text    of the schedule
         queue     text    to which it belongs
DRAINS   schedules: a process that declares its schedules when it starts must be able to start
RETURNS  the entry that it replaces, '' for none
KEEPS    I6
]]
-- @include lib/clock.lua

local now = tick(false)
local replaced = redis.call('HGET', SCHEDULES, name) or ''
redis.call('HSET', SCHEDULES, name, struct.pack('<dc0', now, queue))
return answer(replaced)
