--[[
prolong -- let a lock that the caller has end so long from now.

KEYS     call, holder, wake
ARGV     sequence  text
         token     text    of the holding
         ttl_us    number  microseconds
         kept_ms   text    milliseconds that the record of the call is kept
DRAINS   holder
RETURNS  1  it ends then
         0  the caller had lost it: it ran out, or somebody else has it
KEEPS    no message is touched; a stale token changes nothing.
]]
-- @include lib/clock.lua
-- @include lib/lock.lua

local now = tick(false)
if not has_lock(HOLDER, token, now) then
  return 0
end
local before, ends = tonumber(redis.call('HGET', HOLDER, 'until')), now + ttl_us
redis.call('HSET', HOLDER, 'until', ends)
keep_holder(HOLDER, ttl_us)
if ends < before then
  wake_one(WAKE) -- an end that nobody watches yet
end
return answer(1, kept_ms)
