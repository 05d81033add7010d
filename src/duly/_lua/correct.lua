--[[
correct -- add to counters what an audit found missing. The difference itself is counted.

Whoever has mended something meanwhile may have corrected the same: then nothing is added.

KEYS     call, meta
ARGV     sequence      text
         repairs       number  repairs of this queue that were counted when the audit read the counters
         corrections*  rows    counter, difference
DRAINS   meta
RETURNS  1, or 0 when something was mended since then
KEEPS    I1 I6
]]
if tonumber(redis.call('HGET', META, 'repairs') or 0) ~= repairs then
  return answer(0)
end
redis.call('HINCRBY', META, 'repairs', 1)
for at = corrections.first, corrections.last, corrections.stride do
  redis.call('HINCRBY', META, corrections.counter(at), corrections.difference(at))
end
return answer(1)
