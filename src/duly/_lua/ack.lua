--[[
ack -- finish and remove messages that the caller holds, have no key, and are in a queue that keeps nothing.

Most messages end here, so the script never reads a record. The script finish ends all other messages.

KEYS     call, msgs, leased, leases, counts, why, wake, meta
ARGV     sequence  text
         settles*  rows    id, fence
DRAINS   leases
RETURNS  { position ... } of those whose lease was lost
KEEPS    I1 I2 I5 I6 I9: a stale fence changes nothing; a finished message leaves nothing.
]]
-- @include lib/held_batch.lua
-- @include lib/leased.lua
-- @include lib/wake.lua
-- @include lib/limits.lua

local held, lost = held_batch(LEASES)
local ids, ids_with_rows = held.ids, held.ids_with_rows
if #ids == 0 then
  return lost
end
if #held.owners > 0 then
  return redis.error_reply('ERR message ' .. held.owners[1] .. ' has a key: it is finished by the script finish')
end

remove_leased(LEASED, ids)
redis.call('HDEL', LEASES, unpack(ids))
redis.call('HDEL', MSGS, unpack(ids))
if #ids_with_rows > 0 then
  redis.call('HDEL', COUNTS, unpack(ids_with_rows))
  redis.call('HDEL', WHY, unpack(ids_with_rows))
end
local meta = redis.call('HMGET', META, 'acked', 'bytes', 'limited')
redis.call('HSET', META, 'acked', (meta[1] or 0) + #ids, 'bytes', (meta[2] or 0) - held.size)
if not announce_room(WAKE, META, meta[3]) then
  take_wake_token_if_empty(WAKE, MSGS, META)
end
return answer(lost)
