--[[
seek_group -- move the position of a group in the stream, or create the group.

Messages that are in the group's store stay there.

KEYS     call, leased, wake, meta
ARGV     sequence    text
         to          text    the id after which it reads on; $, or an id later than the last: after the last entry
         only_makes  flag    1: only create it | 0: move an existing group as well
DRAINS   meta
RETURNS  1  it was created or moved
         0  it existed
KEEPS    I1 I6
]]
-- @include lib/group.lua
-- @include lib/group_position.lua
-- @include lib/wake.lua
local GROUP = group_of(LEASED)

to = within_stream(STREAM, to)
local made = redis.pcall('XGROUP', 'CREATE', STREAM, GROUP, to, 'MKSTREAM')
local is_known = type(made) == 'table' and made.err
if is_known and not string.find(is_known, 'BUSYGROUP', 1, true) then
  return made
end
redis.call('HSET', TOPIC_META, 'group:' .. GROUP, 1)
if is_known and only_makes then
  return answer(0)
end
if is_known then
  redis.call('XGROUP', 'SETID', STREAM, GROUP, to)
  -- @only freeing
  free_acked(STREAM) -- this group may have been the last with unread entries
  -- @end
end
leave_wake_token(WAKE)
return answer(1)
