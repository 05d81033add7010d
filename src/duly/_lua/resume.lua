--[[
resume -- hand out again.

KEYS     call      string  last call of the stream and its reply
         msgs      hash    id -> record
         wake      list    the wake token
         meta      hash    clock, paused, priorities, large
ARGV     sequence  of the call in its stream
RETURNS  1
KEEPS    I1 I6
]]
-- @include lib/call.lua
-- @include lib/drain.lua
-- @include lib/wake.lua
local CALL, WAKE, META = KEYS[1], KEYS[3], KEYS[4]
local sequence = ARGV[1]

let_a_full_server_drain(META)
local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end
local is_worth_a_look = redis.call('HDEL', META, 'paused') == 1
-- @only queue
local MSGS = KEYS[2]
is_worth_a_look = is_worth_a_look and redis.call('HLEN', MSGS) > 0
-- @end
if is_worth_a_look then
  leave_token(WAKE)
end
return answer(CALL, sequence, 1)
