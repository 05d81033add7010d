--[[
occupied -- tell which of several queues have anything to come: a message that lives, or the next slot of a schedule.

An idle worker asks this of many queues in one call, in place of a claim for each: a queue that has nothing to come
has nothing to claim. What is dead or done does not count.

KEYS     others*: of each queue: `msgs` and `meta`, hashes; `leased`, `parked` and `waiting` of every priority, zsets
ARGV     stride  number  keys of a queue
RETURNS  { position ... } of the queues that have
KEEPS    writes nothing
]]
local function is_occupied(first)
  local msgs, meta = others.key(first), others.key(first + 1)
  return (
    redis.call('HLEN', msgs) > 0 and redis.call('EXISTS', unpack(KEYS, first + 2, first + stride - 1)) > 0
  ) or redis.call('HEXISTS', meta, 'slot') == 1
end

local found = {}
for first = others.first, #KEYS, stride do
  if is_occupied(first) then
    found[#found + 1] = (first - 1) / stride + 1
  end
end
return found
