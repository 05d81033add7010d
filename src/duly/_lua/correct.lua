--[[
correct -- add the differences that an audit found to counters. The corrections are counted as well.

Another audit may have repaired the queue since, and corrected the same counters. Then nothing is added.

KEYS     call, why, dead, done, meta
ARGV     sequence      text
         repairs       number  the queue's counter of repairs when the audit read the counters
         corrections*  rows    counter: or dead_why or done_why, difference: of the counter; for rows the bytes and the
                               state that was read before they were counted, see lib/row_bytes.lua
DRAINS   meta
RETURNS  1, or 0 if there were repairs since then, or rows were added or removed
KEEPS    I1 I6
]]
-- @include lib/row_bytes.lua

if tonumber(redis.call('HGET', META, 'repairs') or 0) ~= repairs then
  return answer(0)
end
local bytes_of_rows, differences = {}, {}
for at = corrections.first, corrections.last, corrections.stride do
  local counter, difference = corrections.counter(at), corrections.difference(at)
  local place = string.match(counter, '^(%a+)_why$')
  if place then
    local bytes, state = string.match(difference, '^(%d+) (.+)$')
    if state ~= row_state(keys, place) then
      return answer(0)
    end
    bytes_of_rows[place] = tonumber(bytes)
  else
    differences[counter] = difference
  end
end
for _, place in ipairs({ 'dead', 'done' }) do
  row_bytes(keys, place, 0) -- before `repairs` changes
  keys.counted[place] = bytes_of_rows[place] or keys.counted[place]
end
redis.call('HINCRBY', META, 'repairs', 1)
for counter, difference in pairs(differences) do
  redis.call('HINCRBY', META, counter, difference)
end
store_row_bytes(keys)
return answer(1)
