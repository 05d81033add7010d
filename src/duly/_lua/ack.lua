--[[
ack -- finish messages without a key that the caller still owns, on a queue that keeps nothing: they are gone.

This is the script that ends most messages: it never looks at a record. All others are for finish.

KEYS     call      string  last call of the stream and its reply
         msgs      hash    id -> record
         leased    zset    id -> lease deadline
         leases    hash    id -> lease
         counts    hash    id -> what went wrong with it
         why       hash    id -> errors, reason, timeline, result
         wake      list    the wake token
         meta      hash    clock, limited, counters
ARGV     sequence  of the call in its stream
         settles*  id, fence
RETURNS  { position ... } of those whose lease was lost
KEEPS    I1 I2 I5 I6 I9: a stale fence changes nothing; a finished message leaves nothing.
]]
-- @include lib/call.lua
-- @include lib/drain.lua
-- @include lib/held.lua
-- @include lib/leased.lua
-- @include lib/wake.lua
-- @include lib/limits.lua
local CALL, MSGS, LEASED, LEASES = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local COUNTS, WHY, WAKE, META = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local FIRST_SETTLE, STRIDE = 2, 2
local sequence = ARGV[1]

let_a_full_server_drain(LEASES)
local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end

local held, lost = held_by_caller(LEASES, FIRST_SETTLE, STRIDE)
local ids, troubled = held.ids, held.troubled
if #ids == 0 then
  return lost
end
if #held.owners > 0 then
  return redis.error_reply('ERR message ' .. held.owners[2] .. ' has a key: it is finished by the script finish')
end

remove_leased(LEASED, ids)
redis.call('HDEL', LEASES, unpack(ids))
redis.call('HDEL', MSGS, unpack(ids))
if #troubled > 0 then
  redis.call('HDEL', COUNTS, unpack(troubled))
  redis.call('HDEL', WHY, unpack(troubled))
end
local meta = redis.call('HMGET', META, 'acked', 'bytes', 'limited')
redis.call('HSET', META, 'acked', (meta[1] or 0) + #ids, 'bytes', (meta[2] or 0) - held.size)
if not announce_room(WAKE, META, meta[3]) then
  take_token_if_empty(WAKE, MSGS, META)
end
return answer(CALL, sequence, lost)
