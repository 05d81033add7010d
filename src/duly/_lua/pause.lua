--[[
pause -- nothing is handed out until resume. Sends go on.

KEYS     call      string  last call of the stream and its reply
         meta      hash    clock, paused, priorities, large
ARGV     sequence  of the call in its stream
         by        who says so
RETURNS  1
KEEPS    I1 I6
]]
-- @include lib/call.lua
-- @include lib/drain.lua
local CALL, META = KEYS[1], KEYS[2]
local sequence, by = ARGV[1], ARGV[2]

let_a_full_server_drain(META)
local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end
redis.call('HSET', META, 'paused', by)
return answer(CALL, sequence, 1)
