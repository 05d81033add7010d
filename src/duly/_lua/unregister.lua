--[[
unregister -- forget where a schedule was, unless it was noted anew meanwhile.

KEYS     call       string  last call of the stream and its reply
         schedules  hash    name -> when it was noted (a double), and the name of the queue
ARGV     sequence   of the call in its stream
         name       of the schedule
         seen       the entry that the caller goes by
RETURNS  1  forgotten
         0  it was not there, or is another by now
KEEPS    I6
]]
-- @include lib/call.lua
-- @include lib/drain.lua
local CALL, SCHEDULES = KEYS[1], KEYS[2]
local sequence, name, seen = ARGV[1], ARGV[2], ARGV[3]

let_a_full_server_drain(SCHEDULES)
local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end
local removed = 0
if redis.call('HGET', SCHEDULES, name) == seen then
  removed = redis.call('HDEL', SCHEDULES, name)
end
return answer(CALL, sequence, removed)
