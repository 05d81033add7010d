--[[
correct -- add to counters what an audit found missing. The difference itself is counted.

Whoever has mended something meanwhile may have corrected the same: then nothing is added.

KEYS     call          string  last call of the stream and its reply
         meta          hash    counters
ARGV     sequence      of the call in its stream
         repairs       how often something was mended here, when the audit looked at the counters
         corrections*  counter, difference
RETURNS  1, or 0 when something was mended since then
KEEPS    I1 I6
]]
-- @include lib/call.lua
-- @include lib/drain.lua
local CALL, META = KEYS[1], KEYS[2]
local sequence, repairs = ARGV[1], tonumber(ARGV[2])

let_a_full_server_drain(META)
local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end
if tonumber(redis.call('HGET', META, 'repairs') or 0) ~= repairs then
  return answer(CALL, sequence, 0)
end
redis.call('HINCRBY', META, 'repairs', 1)
for at = 3, #ARGV, 2 do
  redis.call('HINCRBY', META, ARGV[at], ARGV[at + 1])
end
return answer(CALL, sequence, 1)
