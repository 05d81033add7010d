--[[
extend -- the holder is alive: its leases run anew from now.

KEYS     call      string  last call of the stream and its reply
         leased    zset    id -> lease deadline
         leases    hash    id -> lease
         wake      list    the wake token
         meta      hash    clock
ARGV     sequence  of the call in its stream
         renews    1: a later deadline stays | 0: the deadline is what is said
         settles*  id, fence, lease in microseconds
RETURNS  { position ... } of those whose lease was lost
KEEPS    I4 I5 I6
]]
-- @include lib/call.lua
-- @include lib/clock.lua
-- @include lib/drain.lua
-- @include lib/lease.lua
-- @include lib/wake.lua
local CALL, LEASED, LEASES, WAKE, META = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local FIRST_SETTLE, STRIDE = 3, 3
local sequence, renews = ARGV[1], ARGV[2] == '1'

let_a_full_server_drain(LEASES)
local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end
local held, lost = sorted_by_holding(LEASES, FIRST_SETTLE, STRIDE)
if #held == 0 then
  return lost
end

local now = tick(redis.call('HGET', META, 'clock'))
local deadlines, is_earlier = {}, false
for _, each in ipairs(held) do
  local before = tonumber(redis.call('ZSCORE', LEASED, each.id) or 0)
  local deadline = now + tonumber(ARGV[each.at + 2])
  if renews then
    deadline = math.max(deadline, before)
  end
  is_earlier = is_earlier or deadline < before
  deadlines[#deadlines + 1] = deadline
  deadlines[#deadlines + 1] = each.id
end
redis.call('ZADD', LEASED, unpack(deadlines))
-- @only group
-- @include lib/group.lua
-- The pending list says how long somebody has been silent: others go by that.
for _, each in ipairs(held) do
  redis.pcall('XCLAIM', STREAM, group_of(LEASED), consumer_of(each.lease), 0, each.id, 'JUSTID')
end
-- @end
remember(META, now)
if is_earlier then
  leave_token(WAKE) -- a lease made shorter is a deadline that nobody watches yet
end
return answer(CALL, sequence, lost)
