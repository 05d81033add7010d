--[[
lock -- take a lock if it is free, or return its holder.

KEYS     call, holder, wake
ARGV     sequence    text
         lock_token  text    identifies this holding
         ttl_us      number  microseconds
         by          text    name of the caller
         kept_ms     text    milliseconds that the record of the call is kept
DRAINS   holder
RETURNS  { fence, left, by }
         fence  grows with every holding; 0: another caller holds the lock
         left   microseconds until the lock expires
         by     name of the holder
KEEPS    no message is touched; one holding at a time; the holder's lock token gets the same holding again.
]]
-- @include lib/clock.lua
-- @include lib/lock.lua

local known = redis.call('HMGET', HOLDER, 'token', 'until', 'fence', 'by')
local next_fence, ahead = tick(known[3])
local now = next_fence - ahead
local left = tonumber(known[2] or 0) - now
if left > 0 then
  local fence = known[1] == lock_token and tonumber(known[3]) or 0
  return answer({ fence, left, known[4] }, kept_ms) -- stored even if it is held: a late copy must not take it
end
redis.call('HSET', HOLDER, 'token', lock_token, 'until', now + ttl_us, 'fence', next_fence, 'by', by)
expire_holder(HOLDER, ttl_us)
redis.call('DEL', WAKE) -- waiting callers can do nothing until it is free again
return answer({ next_fence, ttl_us, by }, kept_ms)
