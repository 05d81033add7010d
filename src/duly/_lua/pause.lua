--[[
pause -- stop deliveries until resume. Sends go on.

KEYS     call, meta
ARGV     sequence  text
         by        text    name of the caller
DRAINS   meta
RETURNS  1
KEEPS    I1 I6
]]

redis.call('HSET', META, 'paused', by)
return answer(1)
