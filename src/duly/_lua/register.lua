--[[
register -- note in the registry which queue a schedule belongs to.

KEYS     call       string  last call of the stream and its reply
         schedules  hash    name -> when it was noted (a double), and the name of the queue
ARGV     sequence   of the call in its stream
         name       of the schedule
         queue      to which it belongs
RETURNS  the entry that it replaces, '' for none
KEEPS    I6
]]
-- @include lib/call.lua
-- @include lib/clock.lua
-- @include lib/drain.lua
local CALL, SCHEDULES = KEYS[1], KEYS[2]
local sequence, name, queue = ARGV[1], ARGV[2], ARGV[3]

let_a_full_server_drain(SCHEDULES) -- a process that declares its schedules when it starts must be able to start
local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end
local now = tick(false)
local replaced = redis.call('HGET', SCHEDULES, name) or ''
redis.call('HSET', SCHEDULES, name, struct.pack('<dc0', now, queue))
return answer(CALL, sequence, replaced)
