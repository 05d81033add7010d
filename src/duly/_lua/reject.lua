--[[
reject -- dead, now: the handler gave up, or the last attempt failed.

KEYS     call        string  last call of the stream and its reply
         msgs        hash    id -> record
         leased      zset    id -> lease deadline
         leases      hash    id -> lease
         counts      hash    id -> what went wrong with it
         why         hash    id -> errors, reason, timeline, result
         expires     zset    id -> when a waiting message with a ttl is over
         dead        zset    id -> when it died
         lanes       hash    key -> the id that its lane belongs to
         parked      zset    what is due and behind its lane's id
         wake        list    the wake token
         meta        hash    clock, limited
         awaited     zset    id -> until when somebody waits for its end
         ends        stream  the ends that were awaited
         waiting*    zset    id -> due, every priority
ARGV     sequence    of the call in its stream
         digits      priorities of `waiting*`
         keep_count  dead letters kept; -1: any number
         keep_age    microseconds they are kept; -1: for ever
         keep_bytes  bytes of them kept; -1: any number
         failed      1: the last attempt, counted as a failure | 0: given up
         on_dead     continue: the lane goes on | block: it waits for the dead letter
         settles*    id, fence, reason, error, traceback
RETURNS  { position ... } of those whose lease was lost
KEEPS    I1 I2 I5 I6 I7 I8
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
-- @include lib/waiting.lua
-- @include lib/wake.lua
-- @include lib/limits.lua
-- @include lib/ends.lua
local CALL, MSGS, LEASED, LEASES, COUNTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local WHY, EXPIRES, DEAD, LANES, PARKED, WAKE, META = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local FIRST_WAITING, FIRST_SETTLE, STRIDE = 15, 8, 5
local sequence, digits, has_failed, on_dead = ARGV[1], ARGV[2], ARGV[6] == '1', ARGV[7]
local keys = {
  msgs = MSGS, counts = COUNTS, why = WHY, expires = EXPIRES, dead = DEAD, meta = META, wake = WAKE,
  lanes = LANES, parked = PARKED, awaited = KEYS[13], ends = KEYS[14],
  waiting = waiting_by_priority(FIRST_WAITING, digits),
  blocks = on_dead == 'block',
}

let_a_full_server_drain(LEASES)
local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end
local held, lost = sorted_by_holding(LEASES, FIRST_SETTLE, STRIDE)
if #held == 0 then
  return lost
end

local meta = redis.call('HMGET', META, 'clock', 'limited')
local now, has_next, ids = tick(meta[1]), false, {}
for i, each in ipairs(held) do
  ids[i] = each.id
end
remove_leased(LEASED, ids)
redis.call('HDEL', LEASES, unpack(ids))
for _, each in ipairs(held) do
  local counted = counts_of(COUNTS, each.id)
  local past = past_of(WHY, each.id)
  local attempt = counted[FAILURES] + counted[CRASHES] + 1
  local reason, error, traceback = ARGV[each.at + 2], ARGV[each.at + 3], ARGV[each.at + 4]
  if has_failed then
    counted[FAILURES] = counted[FAILURES] + 1
  else
    counted.rejects = 1
  end
  if error ~= '' then
    add_error(past, { now, attempt, consumer_of(each.lease), error, traceback })
  end
  add_event(past, now, has_failed and 'fail' or 'reject', each.lease, error ~= '' and error or reason)
  local record = redis.call('HGET', MSGS, each.id)
  has_next = bury(keys, each.id, record, each.lease.size, reason, counted, past, now, each.lease.key) or has_next
end
trim(keys, DEAD, 'dead_bytes', 'trimmed', keep_from(3), now, #held)
announce_ends(keys, ids)
remember(META, now)
if has_next then
  leave_token(WAKE)
elseif not announce_room(WAKE, META, meta[2]) then
  take_token_if_empty(WAKE, MSGS, META)
end
return answer(CALL, sequence, lost)
