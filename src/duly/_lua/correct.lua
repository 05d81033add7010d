--[[
correct -- add the differences that an audit found to counters. The corrections are counted as well.

Another audit may have repaired the queue since, and corrected the same counters. Then nothing is added.

KEYS     call, meta
ARGV     sequence      text
         repairs       number  the queue's counter of repairs when the audit read the counters
         corrections*  rows    counter, difference
DRAINS   meta
RETURNS  1, or 0 if there were repairs since then
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
