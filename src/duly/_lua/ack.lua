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
-- @include lib/lease.lua
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

-- The hot path: no table for each message, no look at a record, and equal leases are read once.
local ids, held, lost, seen, troubled, size = {}, {}, {}, {}, {}, 0
local leases_read, fences_read = {}, {}
for at = FIRST_SETTLE, #ARGV, STRIDE do
  ids[#ids + 1] = ARGV[at]
end
local stored = redis.call('HMGET', LEASES, unpack(ids))
for position, id in ipairs(ids) do
  local text, given = stored[position], ARGV[FIRST_SETTLE + (position - 1) * STRIDE + 1]
  local lease = text and (leases_read[text] or read_lease(text))
  local fence = fences_read[given] or tonumber(given)
  if lease and lease.fence == fence and not seen[id] then
    if lease.key then
      return redis.error_reply('ERR message ' .. id .. ' has a key: it is finished by the script finish')
    end
    leases_read[text], fences_read[given], seen[id] = lease, fence, true
    held[#held + 1] = id
    size = size + lease.size
    if lease.flags >= FLAG_TROUBLED then
      troubled[#troubled + 1] = id
    end
  else
    lost[#lost + 1] = position
  end
end
if #held == 0 then
  return lost
end

remove_leased(LEASED, held)
redis.call('HDEL', LEASES, unpack(held))
redis.call('HDEL', MSGS, unpack(held))
if #troubled > 0 then
  redis.call('HDEL', COUNTS, unpack(troubled))
  redis.call('HDEL', WHY, unpack(troubled))
end
local meta = redis.call('HMGET', META, 'acked', 'bytes', 'limited')
redis.call('HSET', META, 'acked', (meta[1] or 0) + #held, 'bytes', (meta[2] or 0) - size)
if not announce_room(WAKE, META, meta[3]) then
  take_token_if_empty(WAKE, MSGS)
end
return answer(CALL, sequence, lost)
