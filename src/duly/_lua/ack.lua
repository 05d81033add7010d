--[[
ack -- finish messages that the caller still owns.

KEYS     call        string  last call of the stream and its reply
         msgs        hash    id -> record
         leased      zset    id -> lease deadline
         leases      hash    id -> lease
         counts      hash    id -> what went wrong with it
         why         hash    id -> errors, reason
         done        zset    id -> when it was finished
         wake        list    the wake token
         meta        hash    clock
ARGV     sequence    of the call in its stream
         keeps       1: finished messages are kept in `done` | 0: they are gone
         keep_count  finished messages kept; -1: any number
         keep_age    microseconds they are kept; -1: for ever
         keep_bytes  bytes of them kept; -1: any number
         settles*    id, fence
RETURNS  { position ... } of those whose lease was lost
KEEPS    I1 I2 I5 I6 I9: a stale fence changes nothing; a finished message leaves nothing.
]]
-- @include lib/call.lua
-- @include lib/clock.lua
-- @include lib/drain.lua
-- @include lib/lease.lua
-- @include lib/leased.lua
-- @include lib/trim.lua
-- @include lib/wake.lua
local CALL, MSGS, LEASED, LEASES, COUNTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local WHY, DONE, WAKE, META = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local FIRST_SETTLE, STRIDE = 6, 2
local sequence, keeps = ARGV[1], ARGV[2] == '1'

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
if #troubled > 0 then
  redis.call('HDEL', COUNTS, unpack(troubled))
  redis.call('HDEL', WHY, unpack(troubled))
end
if keeps then
  local now = tick(redis.call('HGET', META, 'clock'))
  local kept = 0
  for _, id in ipairs(held) do
    local bytes = redis.call('HSTRLEN', MSGS, id)
    if bytes > 0 then -- a body that is lost is not kept
      redis.call('ZADD', DONE, now, id)
      kept = kept + bytes
    else
      redis.call('HDEL', MSGS, id)
    end
  end
  remember(META, now)
  redis.call('HINCRBY', META, 'done_bytes', kept)
  trim({ msgs = MSGS, why = WHY, meta = META }, DONE, 'done_bytes', 'done_trimmed', keep_from(3), now, #held)
else
  redis.call('HDEL', MSGS, unpack(held))
end
redis.call('HINCRBY', META, 'acked', #held)
redis.call('HINCRBY', META, 'bytes', 0 - size)
take_token_if_empty(WAKE, MSGS)
return answer(CALL, sequence, lost)
