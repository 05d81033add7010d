--[[
leave_group -- take a consumer that has nothing pending off the list of a group's members.

For one that stops in order; of those that die, claim and tidy_topic take care. It may simply be done again, so it
keeps no call record.

KEYS     leased
ARGV     consumer  text    its name
RETURNS  1  it is not on the list
         0  it has entries pending, and stays, or there is no such group
KEEPS    I1
]]
-- @include lib/group.lua
local GROUP = group_of(LEASED)

local pending = redis.pcall('XPENDING', STREAM, GROUP, '-', '+', 1, consumer)
if pending.err or #pending > 0 then
  return 0 -- with its name, what it has pending would be forgotten
end
redis.call('XGROUP', 'DELCONSUMER', STREAM, GROUP, consumer)
return 1
