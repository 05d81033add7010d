--[[
correct -- add to counters what an audit found missing. The difference itself is counted.

KEYS     call          string  last call of the stream and its reply
         stats         hash    counters
ARGV     sequence      of the call in its stream
         corrections*  counter, difference
RETURNS  1
KEEPS    I1 I6
]]
-- @include lib/call.lua
local CALL, STATS = KEYS[1], KEYS[2]
local sequence = tonumber(ARGV[1])

local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end
for at = 2, #ARGV, 2 do
  redis.call('HINCRBY', STATS, ARGV[at], ARGV[at + 1])
end
return answer(CALL, sequence, 1)
