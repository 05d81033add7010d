--[[
depart -- a worker ends in peace.

KEYS     workers, beats
ARGV     consumer  text    name of the worker
RETURNS  1  gone
         0  it was not there
KEEPS    no message is touched; it may be repeated.
]]

redis.call('HDEL', WORKERS, consumer)
return redis.call('ZREM', BEATS, consumer)
