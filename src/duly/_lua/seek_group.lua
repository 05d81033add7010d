--[[
seek_group -- have a group read on from another place; make it if there is none.

What the group holds, or has waiting, stays where it is.

KEYS     call      string  last call of the stream of calls and its reply
         leased    zset    id -> lease deadline
         wake      stream  the group's bell
         meta      hash    clock
ARGV     sequence  of the call in its stream of calls
         to        the id behind which it reads on; $: behind the last, as with one that is still to come
         makes     1: only make it | 0: also move one that is there
RETURNS  1  it was made, or moved
         0  it was there
KEEPS    I1 I6
]]
-- @include lib/call.lua
-- @include lib/drain.lua
-- @include lib/leased.lua
-- @include lib/group.lua
-- @include lib/position.lua
-- @include lib/wake.lua
local CALL, LEASED, WAKE, META = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local sequence, to, only_makes = ARGV[1], ARGV[2], ARGV[3] == '1'
local GROUP = group_of(LEASED)

let_a_full_server_drain(META)
local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end
to = within_stream(STREAM, to)
local made = redis.pcall('XGROUP', 'CREATE', STREAM, GROUP, to, 'MKSTREAM')
local is_known = type(made) == 'table' and made.err
if is_known and not string.find(is_known, 'BUSYGROUP', 1, true) then
  return made
end
redis.call('HSET', TOPIC_META, 'group:' .. GROUP, 1)
if is_known and only_makes then
  return answer(CALL, sequence, 0)
end
if is_known then
  redis.call('XGROUP', 'SETID', STREAM, GROUP, to)
  free_for_others() -- others may have waited only for what was passed over
  free_at_last()
end
leave_token(WAKE)
return answer(CALL, sequence, 1)
