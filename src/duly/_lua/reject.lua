--[[
reject -- dead, now: the handler gave up, or the last attempt failed.

KEYS     call        string  last call of the stream and its reply
         msgs        hash    id -> record
         leased      zset    id -> lease deadline
         leases      hash    id -> lease
         counts      hash    id -> what went wrong with it
         why         hash    id -> errors, reason
         expires     zset    id -> when a waiting message with a ttl is over
         dead        zset    id -> when it died
         wake        list    the wake token
         meta        hash    clock
ARGV     sequence    of the call in its stream
         keep_count  dead letters kept; -1: any number
         keep_age    microseconds they are kept; -1: for ever
         keep_bytes  bytes of them kept; -1: any number
         failed      1: the last attempt, counted as a failure | 0: given up
         settles*    id, fence, reason, error, traceback
RETURNS  { position ... } of those whose lease was lost
KEEPS    I1 I2 I5 I6 I8
]]
-- @include lib/call.lua
-- @include lib/clock.lua
-- @include lib/drain.lua
-- @include lib/record.lua
-- @include lib/lease.lua
-- @include lib/leased.lua
-- @include lib/counts.lua
-- @include lib/why.lua
-- @include lib/bury.lua
-- @include lib/trim.lua
-- @include lib/wake.lua
local CALL, MSGS, LEASED, LEASES, COUNTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local WHY, EXPIRES, DEAD, WAKE, META = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local FIRST_SETTLE, STRIDE = 6, 5
local sequence, has_failed = ARGV[1], ARGV[5] == '1'
local keys = { msgs = MSGS, counts = COUNTS, why = WHY, expires = EXPIRES, dead = DEAD, meta = META }

let_a_full_server_drain(LEASES)
local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end
local held, lost = sorted_by_holding(LEASES, FIRST_SETTLE, STRIDE)
if #held == 0 then
  return lost
end

local now = tick(redis.call('HGET', META, 'clock'))
for _, each in ipairs(held) do
  local counted = counts_of(COUNTS, each.id)
  local errors = errors_of(WHY, each.id)
  local attempt = counted[FAILURES] + counted[CRASHES] + 1
  local reason, error, traceback = ARGV[each.at + 2], ARGV[each.at + 3], ARGV[each.at + 4]
  if has_failed then
    counted[FAILURES] = counted[FAILURES] + 1
  else
    counted.rejects = 1
  end
  if error ~= '' then
    with_error(errors, { now, attempt, each.lease.consumer, error, traceback })
  end
  remove_leased(LEASED, { each.id })
  redis.call('HDEL', LEASES, each.id)
  local record = redis.call('HGET', MSGS, each.id)
  bury(keys, each.id, record, each.lease.size, reason, counted, errors, now)
end
trim(keys, DEAD, 'dead_bytes', 'trimmed', keep_from(2), now, #held)
remember(META, now)
take_token_if_empty(WAKE, MSGS)
return answer(CALL, sequence, lost)
