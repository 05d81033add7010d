--[[
schedule -- store a schedule of this queue, or leave the same one as it is.

Every process may declare its schedules when it starts: the same plan again changes nothing, and a full server takes
them. The slots of another plan count from now. A paused schedule stays paused.

KEYS     call       string  last call of the stream and its reply
         schedules  hash    name -> row
         slots      zset    name -> when to look at it next
         wake       list    the wake token
         meta       hash    clock, slot
ARGV     sequence   of the call in its stream
         name       of the schedule
         plan       what the client stores of it
RETURNS  1  stored
         0  it was there
KEEPS    I1 I6
]]
-- @include lib/call.lua
-- @include lib/clock.lua
-- @include lib/drain.lua
-- @include lib/wake.lua
-- @include lib/schedule.lua
local CALL, SCHEDULES, SLOTS, WAKE, META = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local sequence, name, plan = ARGV[1], ARGV[2], ARGV[3]

let_a_full_server_drain(META) -- a process that declares its schedules when it starts must be able to start
local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end
local row = redis.call('HGET', SCHEDULES, name)
local created, _, _, paused = read_head(row)
if created and plan_of(row) == plan then
  return answer(CALL, sequence, 0)
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
return answer(CALL, sequence, 1)
