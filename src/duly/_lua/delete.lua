--[[
delete -- remove a queue with its messages and counters.

KEYS     call, msgs, leased, leases, counts, why, expires, dead, done, dedup, dedup_ends, lanes, parked,
         schedules, slots, wake, meta, awaited, ends, history, waiting*
ARGV     sequence  text
RETURNS  number of keys removed
KEEPS    I6 I9
]]
local removed = redis.call('UNLINK', unpack(KEYS, KEYS.first, KEYS.last))
-- @only group
-- @include lib/leased.lua
local GROUP = group_of(MSGS)
redis.pcall('XGROUP', 'DESTROY', STREAM, GROUP)
redis.call('HDEL', TOPIC_META, 'group:' .. GROUP, 'missed:' .. GROUP)
if redis.call('TYPE', STREAM).ok == 'stream' then
  ack_entries(GROUP, { '0-1' }) -- this group may have been the last that held entries
end
-- @end
return answer(removed)
