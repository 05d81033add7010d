--[[
depart -- remove a worker that stops from the registry.

KEYS     workers, beats
ARGV     consumer  text    name of the worker
RETURNS  1  removed
         0  it was not registered
KEEPS    no message is touched; a repeat does no harm.
]]

redis.call('HDEL', WORKERS, consumer)
return redis.call('ZREM', BEATS, consumer)
