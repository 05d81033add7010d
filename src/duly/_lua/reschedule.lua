--[[
reschedule -- set the due time of a waiting message. To promote a message is to make it due now.

KEYS     call, msgs, counts, expires, leases, lanes, parked, wake, meta, waiting*
ARGV     sequence  text
         digits    text
         id        text    of the message
         when      text    0 now, unless it is due already | +us from now | =us since the epoch
DRAINS   leases
RETURNS  1  done
         0  it is not waiting, but leased, dead, finished or unknown
KEEPS    I1 I2 I3 I6 I7: a ttl counts from the new due time.
]]
-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/lanes.lua
-- @include lib/wake.lua
-- @include lib/counts.lua
-- @include lib/store.lua

local record = redis.call('HGET', keys.msgs, id)
local is_sound = not flaw_of(record)
local waiting, key = is_sound and keys.waiting[priority_of(record)], is_sound and key_of(record)
local due = waiting and redis.call('ZSCORE', waiting, id)
local member = key and not due and parked_member(key, record, id)
local is_parked = member and redis.call('ZSCORE', keys.parked, member)
if not due and not is_parked then
  return answer(0) -- stored: a late copy must not move a later message with this id
end
local now, ahead = tick(redis.call('HGET', keys.meta, 'clock'))
if when == '0' and (is_parked or tonumber(due) <= now) then
  return answer(1)
end

local new_due = when == '0' and now or due_at(now, ahead, when)
local rewritten = stamped(sent_of(record), new_due, part_of(record))
redis.call('HSET', keys.msgs, id, rewritten)
if is_parked then
  redis.call('ZREM', keys.parked, member)
end
redis.call('ZADD', waiting, due_of(rewritten), id)
if has(flags_of(record), FLAG_TTL) then
  redis.call('ZADD', keys.expires, expiry_of(rewritten), id)
end
local counted = counts_of(keys.counts, id)
if counted[DUE] > 0 then
  counted[DUE] = 0
  keep_counts(keys.counts, id, counted)
end
if key and not was_delivered(counted) then
  hand_on(keys, { key }, { id }, now) -- it was never delivered: another of its lane may come first
end
store_clock(keys.meta, now)
leave_wake_token(keys.wake)
return answer(1)
