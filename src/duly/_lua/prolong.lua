--[[
prolong -- set the end of a lock that the caller holds to now + ttl.

KEYS     call, holder, wake
ARGV     sequence    text
         lock_token  text    identifies the holding
         ttl_us      number  microseconds
         kept_ms     text    milliseconds that the record of the call is kept
DRAINS   holder
RETURNS  1  done
         0  the caller has lost the lock: it expired, or another caller holds it
KEEPS    no message is touched; a stale lock token changes nothing.
]]
-- @include lib/clock.lua
-- @include lib/lock.lua

local now = tick(false)
if not has_lock(HOLDER, lock_token, now) then
  return 0
end
local before, ends = tonumber(redis.call('HGET', HOLDER, 'until')), now + ttl_us
redis.call('HSET', HOLDER, 'until', ends)
expire_holder(HOLDER, ttl_us)
if ends < before then
  wake_one(WAKE) -- no waiting caller watches the earlier end yet
end
return answer(1, kept_ms)
