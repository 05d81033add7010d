--[[
wake -- somebody else must watch: a consumer that waited leaves in the middle.

KEYS     wake, msgs, meta
DRAINS   meta
RETURNS  1
KEEPS    no message is touched; a second token is never left.
]]
-- @include lib/wake.lua

if is_anything_to_come(MSGS, META) then
  leave_token(WAKE)
end
return 1
