--[[
pause -- nothing is handed out until resume. Sends go on.

KEYS     meta  hash    clock, paused, priorities, large
ARGV     by    who says so
RETURNS  1
KEEPS    I1
]]
local META = KEYS[1]
redis.call('HSET', META, 'paused', ARGV[1])
return 1
