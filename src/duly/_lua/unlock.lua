--[[
unlock -- free a lock that the caller has, and wake one who waits for it.

KEYS     call      string  last call of the stream and its reply
         holder    hash    token, until, fence, by
         wake      list    the wake token
ARGV     sequence  of the call in its stream
         token     of the holding
         kept      milliseconds that the record of the call is kept
RETURNS  1  free
         0  the caller had lost it: it ran out, or somebody else has it
KEEPS    no message is touched; a stale token changes nothing.
]]
-- @include lib/call.lua
-- @include lib/clock.lua
-- @include lib/drain.lua
-- @include lib/lock.lua
local CALL, HOLDER, WAKE = KEYS[1], KEYS[2], KEYS[3]
local sequence, token, kept_ms = ARGV[1], ARGV[2], ARGV[3]

let_a_full_server_drain(HOLDER)
local repeated = answered(CALL, sequence, kept_ms)
if repeated then
  return repeated
end
if not has_lock(HOLDER, token, tick(false)) then
  return 0
end
redis.call('HDEL', HOLDER, 'token', 'until', 'by') -- the fence stays
keep_holder(HOLDER, 0)
wake_one(WAKE)
return answer(CALL, sequence, 1, kept_ms)
