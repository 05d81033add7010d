--[[
occupied -- return which of several queues have live messages or a schedule.

An idle worker checks many queues in one call, instead of one claim per queue. The other queues have nothing to claim.
Dead and finished messages do not count.

KEYS     others*: of each queue: `msgs` and `meta`, hashes; `leased`, `parked` and `waiting` of every priority, zsets
ARGV     stride  number  keys per queue
RETURNS  { position ... } of these queues
KEEPS    writes nothing
]]
local function is_occupied(first)
  local msgs, meta = others.key(first), others.key(first + 1)
  return (redis.call('HLEN', msgs) > 0 and redis.call('EXISTS', unpack(KEYS, first + 2, first + stride - 1)) > 0)
    or redis.call('HEXISTS', meta, 'slot') == 1
end

local found = {}
for first = others.first, #KEYS, stride do
  if is_occupied(first) then
    found[#found + 1] = (first - 1) / stride + 1
  end
end
return found
