--[[
schedule -- store a schedule of this queue, unless it is stored already.

Every process may declare its schedules when it starts. The same plan changes nothing, and a full server accepts it. The
runs of another plan count from now. A paused schedule stays paused.

KEYS     call, schedules, slots, wake, meta
ARGV     sequence  text
         name      text    of the schedule
         plan      text    the schedule as the client encodes it
DRAINS   meta: a process declares its schedules when it starts, and must be able to start
RETURNS  1  stored
         0  the same schedule was stored already
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
store_clock(META, now)
redis.call('HSET', SCHEDULES, name, written_head(now, now, 0, paused) .. plan)
set_next_run(SLOTS, META, name, paused == 0 and now)
if paused == 0 then
  leave_wake_token(WAKE) -- a consumer must compute the time of its first run
end
return answer(1)
