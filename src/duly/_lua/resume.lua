--[[
resume -- deliver messages again after pause.

KEYS     call, msgs, wake, meta
ARGV     sequence  text
DRAINS   meta
RETURNS  1
KEEPS    I1 I6
]]
-- @include lib/wake.lua

local needs_token = redis.call('HDEL', META, 'paused') == 1
-- @only queue
needs_token = needs_token and redis.call('HLEN', MSGS) > 0
-- @end
if needs_token then
  leave_wake_token(WAKE)
end
return answer(1)
