--[[
seek_group -- have a group read on from another place; make it if there is none.

What the group holds, or has waiting, stays where it is.

KEYS     call, leased, wake, meta
ARGV     sequence    text
         to          text    the id behind which it reads on; $: behind the last, as with one that is still to come
         only_makes  flag    1: only make it | 0: also move one that is there
DRAINS   meta
RETURNS  1  it was made, or moved
         0  it was there
KEEPS    I1 I6
]]
-- @include lib/group.lua
-- @include lib/position.lua
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
  free_acked(STREAM) -- this group may have been the last that had not read entries
  -- @end
end
leave_token(WAKE)
return answer(1)
