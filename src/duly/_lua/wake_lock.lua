--[[
wake_lock -- leave the token of a lock to another waiting caller: one that waited has stopped.

KEYS     holder, wake
DRAINS   holder
RETURNS  1
KEEPS    no message is touched; there is never a second token.
]]
-- @include lib/lock.lua

wake_one(WAKE)
return 1
