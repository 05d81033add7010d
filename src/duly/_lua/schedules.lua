--[[
schedules -- return the schedules of a queue, or entries of the registry of schedules.

KEYS     schedules, meta
ARGV     cursor  text    0 at first, then the cursor of the last reply
         name    text    of one schedule; '': all
RETURNS  { now, cursor, name, row ... }; the cursor is 0 at the end
KEEPS    writes nothing
]]
-- @include lib/clock.lua
local LOOKED_AT_PER_CALL = 100

local now = tick(redis.call('HGET', META, 'clock'))
if name ~= '' then
  local row = redis.call('HGET', SCHEDULES, name)
  if row then
    return { now, '0', name, row }
  end
  return { now, '0' }
end
local page = redis.call('HSCAN', SCHEDULES, cursor, 'COUNT', LOOKED_AT_PER_CALL)
local reply = { now, page[1] }
for _, each in ipairs(page[2]) do
  reply[#reply + 1] = each
end
return reply
