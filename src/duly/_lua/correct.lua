--[[
correct -- add to counters what an audit found missing. The difference itself is counted.

KEYS     call          string  last call of the stream and its reply
         meta          hash    counters
ARGV     sequence      of the call in its stream
         corrections*  counter, difference
RETURNS  1
KEEPS    I1 I6
]]
-- @include lib/call.lua
-- @include lib/drain.lua
local CALL, META = KEYS[1], KEYS[2]
local sequence = ARGV[1]

let_a_full_server_drain(META)
local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end
for at = 2, #ARGV, 2 do
  redis.call('HINCRBY', META, ARGV[at], ARGV[at + 1])
end
return answer(CALL, sequence, 1)
