--[[
wake -- somebody else must watch: a consumer that waited leaves in the middle.

KEYS     wake  list  the wake token
         msgs  hash  id -> record
         meta  hash  slot
RETURNS  1
KEEPS    no message is touched; a second token is never left.
]]
-- @include lib/drain.lua
-- @include lib/wake.lua
local WAKE, MSGS, META = KEYS[1], KEYS[2], KEYS[3]

let_a_full_server_drain(META)
if is_anything_to_come(MSGS, META) then
  leave_token(WAKE)
end
return 1
