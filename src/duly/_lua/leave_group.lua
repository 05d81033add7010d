--[[
leave_group -- remove a consumer without pending entries from a consumer group.

A consumer that stops calls this. The scripts claim and tidy_topic remove consumers that died. A repeat does no harm, so
the script keeps no call record.

KEYS     leased
ARGV     consumer  text    its name
RETURNS  1  the group does not have it
         0  it has pending entries and stays, or there is no such group
KEEPS    I1
]]
-- @include lib/group.lua
local GROUP = group_of(LEASED)

local pending = redis.pcall('XPENDING', STREAM, GROUP, '-', '+', 1, consumer)
if pending.err or #pending > 0 then
  return 0 -- removing it would remove its pending entries
end
redis.call('XGROUP', 'DELCONSUMER', STREAM, GROUP, consumer)
return 1
