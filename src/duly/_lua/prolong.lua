--[[
prolong -- let a lock that the caller has end so long from now.

KEYS     call      string  last call of the stream and its reply
         holder    hash    token, until, fence, by
         wake      list    the wake token
ARGV     sequence  of the call in its stream
         token     of the holding
         ttl       microseconds
         kept      milliseconds that the record of the call is kept
RETURNS  1  it ends then
         0  the caller had lost it: it ran out, or somebody else has it
KEEPS    no message is touched; a stale token changes nothing.
]]
-- @include lib/call.lua
-- @include lib/clock.lua
-- @include lib/drain.lua
-- @include lib/lock.lua
local CALL, HOLDER, WAKE = KEYS[1], KEYS[2], KEYS[3]
local sequence, token, ttl_us, kept_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

let_a_full_server_drain(HOLDER)
local repeated = answered(CALL, sequence, kept_ms)
if repeated then
  return repeated
end
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
return answer(CALL, sequence, 1, kept_ms)
