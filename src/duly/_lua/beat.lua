--[[
beat -- a worker lives. Others that are silent for too long are forgotten.

KEYS     workers       hash  consumer -> info
         beats         zset  consumer -> time of its last beat
ARGV     consumer      name of the worker
         info          what it says of itself
         forget_after  microseconds of silence
RETURNS  1
KEEPS    no message is touched; a beat that is repeated is a later one.
]]
-- @include lib/clock.lua
-- @include lib/drain.lua
local WORKERS, BEATS = KEYS[1], KEYS[2]
local consumer, info, forget_after = ARGV[1], ARGV[2], tonumber(ARGV[3])
local FORGOTTEN_A_CALL = 100

let_a_full_server_drain(WORKERS)
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
