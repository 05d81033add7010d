--[[
lock -- take a lock that is free, or learn who has it.

KEYS     call, holder, wake
ARGV     sequence  text
         token     text    of this holding
         ttl_us    number  microseconds
         by        text    who takes it
         kept_ms   text    milliseconds that the record of the call is kept
DRAINS   holder
RETURNS  { fence, left, by }
         fence  grows with every holding of the lock; 0: somebody else has it
         left   microseconds until it ends by itself
         by     who has it
KEEPS    no message is touched; one holding at a time, and a token that has the lock has it still.
]]
-- @include lib/clock.lua
-- @include lib/lock.lua

local known = redis.call('HMGET', HOLDER, 'token', 'until', 'fence', 'by')
local next_fence, ahead = tick(known[3])
local now = next_fence - ahead
local left = tonumber(known[2] or 0) - now
if left > 0 then
  local fence = known[1] == token and tonumber(known[3]) or 0
  return answer({ fence, left, known[4] }, kept_ms) -- also of a busy one, or a late copy would take it
end
redis.call('HSET', HOLDER, 'token', token, 'until', now + ttl_us, 'fence', next_fence, 'by', by)
keep_holder(HOLDER, ttl_us)
redis.call('DEL', WAKE) -- there is nothing to look for until it is free again
return answer({ next_fence, ttl_us, by }, kept_ms)
