--[[
beat -- a worker lives. Others that are silent for too long are forgotten.

KEYS     workers, beats
ARGV     consumer      text    name of the worker
         info          text    what it says of itself
         forget_after  number  microseconds of silence
DRAINS   workers
RETURNS  1
KEEPS    no message is touched; a beat that is repeated is a later one.
]]
-- @include lib/clock.lua
local FORGOTTEN_A_CALL = 100

local now = tick(false)
redis.call('HSET', WORKERS, consumer, info)
redis.call('ZADD', BEATS, now, consumer)
local oldest_kept = string.format('(%.0f', now - forget_after)
local silent = redis.call('ZRANGEBYSCORE', BEATS, '-inf', oldest_kept, 'LIMIT', 0, FORGOTTEN_A_CALL)
if #silent > 0 then
  redis.call('ZREM', BEATS, unpack(silent))
  redis.call('HDEL', WORKERS, unpack(silent))
end
return 1
