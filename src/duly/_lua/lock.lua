--[[
lock -- take a lock that is free, or learn who has it.

KEYS     call      string  last call of the stream and its reply
         holder    hash    token, until, fence, by
         wake      list    the wake token
ARGV     sequence  of the call in its stream
         token     of this holding
         ttl       microseconds
         by        who takes it
         kept      milliseconds that the record of the call is kept
RETURNS  { fence, left, by }
         fence  grows with every holding of the lock; 0: somebody else has it
         left   microseconds until it ends by itself
         by     who has it
KEEPS    no message is touched; one holding at a time, and a token that has the lock has it still.
]]
-- @include lib/call.lua
-- @include lib/clock.lua
-- @include lib/drain.lua
-- @include lib/lock.lua
local CALL, HOLDER, WAKE = KEYS[1], KEYS[2], KEYS[3]
local sequence, token, ttl_us, by, kept_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]

let_a_full_server_drain(HOLDER)
local repeated = answered(CALL, sequence, kept_ms)
if repeated then
  return repeated
end

local known = redis.call('HMGET', HOLDER, 'token', 'until', 'fence', 'by')
local next_fence, ahead = tick(known[3])
local now = next_fence - ahead
local left = tonumber(known[2] or 0) - now
if left > 0 then
  local fence = known[1] == token and tonumber(known[3]) or 0
  return answer(CALL, sequence, { fence, left, known[4] }, kept_ms) -- also of a busy one, or a late copy would take it
end
redis.call('HSET', HOLDER, 'token', token, 'until', now + ttl_us, 'fence', next_fence, 'by', by)
keep_holder(HOLDER, ttl_us)
redis.call('DEL', WAKE) -- there is nothing to look for until it is free again
return answer(CALL, sequence, { next_fence, ttl_us, by }, kept_ms)
