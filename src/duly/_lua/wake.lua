--[[
wake -- leave the token to another consumer: one that waited has stopped.

KEYS     wake, msgs, meta
DRAINS   meta
RETURNS  1
KEEPS    no message is touched; there is never a second token.
]]
-- @include lib/wake.lua

if needs_watching(MSGS, META) then
  leave_wake_token(WAKE)
end
return 1
