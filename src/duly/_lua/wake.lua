--[[
wake -- hand a token on: a consumer took it and leaves without having looked.

KEYS     wake  list  the wake token
RETURNS  1
KEEPS    no message is touched; a second token is never left.
]]
-- @include lib/wake.lua
leave_token(KEYS[1])
return 1
