--[[
reject -- make messages dead letters: their handler rejected them, or the last attempt failed.

KEYS     call, msgs, leased, leases, counts, why, expires, dead, lanes, parked, wake, meta, awaited, ends,
         waiting*
ARGV     sequence    text
         digits      text
         dead_kept   row     count, age: microseconds, bytes; of dead letters, -1: no bound
         has_failed  flag    1: the last attempt failed, which counts as a failure | 0: rejected
         on_dead     text    continue: a dead letter frees its lane | block: it keeps its lane
         settles*    rows    id, fence, reason, error, traceback
DRAINS   leases
RETURNS  { position ... } of those whose lease was lost
KEEPS    I1 I2 I5 I6 I7 I8
]]
-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/held_settles.lua
-- @include lib/leased.lua
-- @include lib/counts.lua
-- @include lib/history.lua
-- @include lib/bury.lua
-- @include lib/trim.lua
-- @include lib/wake.lua
-- @include lib/limits.lua
-- @include lib/ends.lua
keys.blocks = on_dead == 'block'

local held, lost = held_settles(LEASES)
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
  local history = history_of(WHY, each.id)
  local attempt = counted[FAILURES] + counted[CRASHES] + 1
  local reason, error, traceback = settles.reason(each.at), settles.error(each.at), settles.traceback(each.at)
  if has_failed then
    counted[FAILURES] = counted[FAILURES] + 1
  else
    counted.rejects = 1
  end
  if error ~= '' then
    add_error(history, { now, attempt, consumer_of(each.lease), error, traceback })
  end
  add_event(history, now, has_failed and 'fail' or 'reject', each.lease, error ~= '' and error or reason)
  local record = redis.call('HGET', MSGS, each.id)
  has_next = bury(keys, each.id, record, each.lease.size, reason, counted, history, now, each.lease.key) or has_next
end
local kept = bounds_of(dead_kept.count, dead_kept.age, dead_kept.bytes)
trim(keys, 'dead', kept, now, #held)
announce_ends(keys, ids)
store_clock(META, now)
if has_next then
  leave_wake_token(WAKE)
elseif not announce_room(WAKE, META, meta[2]) then
  take_wake_token_if_empty(WAKE, MSGS, META)
end
return answer(lost)
