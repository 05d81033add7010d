--[[
depart -- a worker ends in peace.

KEYS     workers   hash  consumer -> info
         beats     zset  consumer -> time of its last beat
ARGV     consumer  name of the worker
RETURNS  1  gone
         0  it was not there
KEEPS    no message is touched; it may be repeated.
]]
local WORKERS, BEATS = KEYS[1], KEYS[2]
local consumer = ARGV[1]

redis.call('HDEL', WORKERS, consumer)
return redis.call('ZREM', BEATS, consumer)
