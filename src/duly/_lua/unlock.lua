--[[
unlock -- free a lock that the caller has, and wake one who waits for it.

KEYS     call, holder, wake
ARGV     sequence  text
         token     text    of the holding
         kept_ms   text    milliseconds that the record of the call is kept
DRAINS   holder
RETURNS  1  free
         0  the caller had lost it: it ran out, or somebody else has it
KEEPS    no message is touched; a stale token changes nothing.
]]
-- @include lib/clock.lua
-- @include lib/lock.lua

if not has_lock(HOLDER, token, tick(false)) then
  return 0
end
redis.call('HDEL', HOLDER, 'token', 'until', 'by') -- the fence stays
keep_holder(HOLDER, 0)
wake_one(WAKE)
return answer(1, kept_ms)
