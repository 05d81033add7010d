--[[
wake_lock -- somebody else must look: one who waited for a lock leaves in the middle.

KEYS     holder, wake
DRAINS   holder
RETURNS  1
KEEPS    no message is touched; a second token is never left.
]]
-- @include lib/lock.lua

wake_one(WAKE)
return 1
