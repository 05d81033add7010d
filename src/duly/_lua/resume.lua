--[[
resume -- deliver messages again after pause.

KEYS     call, msgs, wake, meta
ARGV     sequence  text
DRAINS   meta
RETURNS  1
KEEPS    I1 I6
]]
-- @include lib/wake.lua

local is_worth_a_look = redis.call('HDEL', META, 'paused') == 1
-- @only queue
is_worth_a_look = is_worth_a_look and redis.call('HLEN', MSGS) > 0
-- @end
if is_worth_a_look then
  leave_token(WAKE)
end
return answer(1)
