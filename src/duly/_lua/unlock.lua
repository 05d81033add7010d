--[[
unlock -- free a lock that the caller holds, and wake one waiting caller.

KEYS     call, holder, wake
ARGV     sequence    text
         lock_token  text    identifies the holding
         kept_ms     text    milliseconds that the record of the call is kept
DRAINS   holder
RETURNS  1  free
         0  the caller has lost the lock: it expired, or another caller holds it
KEEPS    no message is touched; a stale lock token changes nothing.
]]
-- @include lib/clock.lua
-- @include lib/lock.lua

if not has_lock(HOLDER, lock_token, tick(false)) then
  return 0
end
redis.call('HDEL', HOLDER, 'token', 'until', 'by') -- the fence stays
expire_holder(HOLDER, 0)
wake_one(WAKE)
return answer(1, kept_ms)
