--[[
wake_lock -- somebody else must look: one who waited for a lock leaves in the middle.

KEYS     holder  hash  token, until, fence, by
         wake    list  the wake token
RETURNS  1
KEEPS    no message is touched; a second token is never left.
]]
-- @include lib/drain.lua
-- @include lib/lock.lua
local HOLDER, WAKE = KEYS[1], KEYS[2]

let_a_full_server_drain(HOLDER)
wake_one(WAKE)
return 1
