--[[
schedule -- store a schedule of this queue, or leave the same one as it is.

Every process may declare its schedules when it starts: the same plan again changes nothing, and a full server takes
them. The slots of another plan count from now. A paused schedule stays paused.

KEYS     call, schedules, slots, wake, meta
ARGV     sequence  text
         name      text    of the schedule
         plan      text    what the client stores of it
DRAINS   meta: a process that declares its schedules when it starts must be able to start
RETURNS  1  stored
         0  it was there
KEEPS    I1 I6
]]
-- @include lib/clock.lua
-- @include lib/wake.lua
-- @include lib/schedule.lua

local row = redis.call('HGET', SCHEDULES, name)
local created, _, _, paused = read_head(row)
if created and plan_of(row) == plan then
  return answer(0)
end
paused = paused or 0

-- Writes
local now = tick(redis.call('HGET', META, 'clock'))
remember(META, now)
redis.call('HSET', SCHEDULES, name, written_head(now, now, 0, paused) .. plan)
look_at(SLOTS, META, name, paused == 0 and now)
if paused == 0 then
  leave_token(WAKE) -- somebody must find out when its first slot is
end
return answer(1)
