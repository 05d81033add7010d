--[[
extend -- set the deadlines of leases to now + lease.

KEYS     call, leased, leases, wake, meta
ARGV     sequence  text
         renews    flag    1: a renewal, which keeps a later deadline | 0: it may shorten a lease
         settles*  rows    id, fence, lease: microseconds
DRAINS   leases
RETURNS  { position ... } of those whose lease was lost
KEEPS    I4 I5 I6
]]
-- @include lib/clock.lua
-- @include lib/held_settles.lua
-- @include lib/wake.lua

local held, lost = held_settles(LEASES)
if #held == 0 then
  return lost
end

local now = tick(redis.call('HGET', META, 'clock'))
local deadlines, is_earlier = {}, false
for _, each in ipairs(held) do
  local before = tonumber(redis.call('ZSCORE', LEASED, each.id) or 0)
  local deadline = now + tonumber(settles.lease(each.at))
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
-- Reset the idle time in the pending list: other programs claim entries by their idle time.
for _, each in ipairs(held) do
  redis.pcall('XCLAIM', STREAM, group_of(LEASED), consumer_of(each.lease), 0, each.id, 'JUSTID')
end
-- @end
store_clock(META, now)
if is_earlier then
  leave_wake_token(WAKE) -- no consumer watches the earlier deadline yet
end
return answer(lost)
