--[[
resume -- hand out again.

KEYS     wake  list    the wake token
         meta  hash    clock, paused, priorities, large
RETURNS  1
KEEPS    I1
]]
-- @include lib/wake.lua
local WAKE, META = KEYS[1], KEYS[2]
if redis.call('HDEL', META, 'paused') == 1 then
  leave_token(WAKE)
end
return 1
