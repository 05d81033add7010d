--[[
beat -- store the heartbeat of a worker, and remove workers whose last heartbeat is too old.

KEYS     workers, beats
ARGV     consumer      text    name of the worker
         info          text    its report
         forget_after  number  microseconds without a heartbeat
DRAINS   workers
RETURNS  1
KEEPS    no message is touched; a repeat is a later heartbeat.
]]
-- @include lib/clock.lua
local FORGOTTEN_PER_CALL = 100

local now = tick(false)
redis.call('HSET', WORKERS, consumer, info)
redis.call('ZADD', BEATS, now, consumer)
local oldest_kept = string.format('(%.0f', now - forget_after)
local silent = redis.call('ZRANGEBYSCORE', BEATS, '-inf', oldest_kept, 'LIMIT', 0, FORGOTTEN_PER_CALL)
if #silent > 0 then
  redis.call('ZREM', BEATS, unpack(silent))
  redis.call('HDEL', WORKERS, unpack(silent))
end
return 1
