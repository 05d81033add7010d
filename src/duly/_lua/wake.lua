--[[
wake -- somebody else must watch: a consumer that waited leaves in the middle.

KEYS     wake  list  the wake token
         msgs  hash  id -> record
RETURNS  1
KEEPS    no message is touched; a second token is never left.
]]
-- @include lib/wake.lua
local WAKE, MSGS = KEYS[1], KEYS[2]
if redis.call('HLEN', MSGS) > 0 then
  leave_token(WAKE)
end
return 1
