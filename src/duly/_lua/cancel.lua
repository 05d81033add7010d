--[[
cancel -- remove a message that waits or is dead, and on request one that is leased.

KEYS     call, msgs, leased, leases, counts, why, expires, dead, done, dedup, dedup_ends, lanes, parked, wake,
         meta, awaited, ends, waiting*
ARGV     sequence  text
         digits    text
         id        text    of the message
         running   flag    1: remove a leased message as well; its holder loses the lease
DRAINS   leases
RETURNS  1  this call removed it
         0  unknown, finished, or leased and `running` is not 1
KEEPS    I1 I2 I5 I6 I7 I9: the next settle of the holder reports a lost lease; the dedup value is free.
]]
-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/lease.lua
-- @include lib/leased.lua
-- @include lib/forget.lua
-- @include lib/place.lua
-- @include lib/row_bytes.lua
-- @include lib/wake.lua
-- @include lib/limits.lua
-- @include lib/ends.lua

local record = redis.call('HGET', keys.msgs, id)
local place, _, key, member = place_of(keys, id, record)
-- A lease that ran out counts until a claim reclaims the message: its holder may still settle it.
if not place or place == 'done' or (place == 'leased' and not running) then
  return answer(0) -- stored: a late copy must not end a later message with this id
end
local size, lease = record and #record or 0, nil
if place == 'leased' then
  local stored = redis.call('HGET', keys.leases, id)
  lease = stored and read_lease(stored)
  size = lease and lease.size or size
  remove_leased(keys.leased, { id })
  redis.call('HDEL', keys.leases, id)
else
  if place == 'dead' then
    add_row_bytes(keys, place, 0 - redis.call('HSTRLEN', keys.why, id))
  end
  redis.call('ZREM', key, member)
  store_row_bytes(keys)
end
free_dedup(keys, id, record)
redis.call('HINCRBY', keys.meta, place == 'dead' and 'dead_bytes' or 'bytes', 0 - size)
forget(keys, id)
redis.call('HINCRBY', keys.meta, 'cancelled', 1)
announce_ends(keys, { id })
local meta = redis.call('HMGET', keys.meta, 'clock', 'limited')
if leave_lane(keys, id, record, tick(meta[1]), lease) then
  leave_wake_token(keys.wake)
elseif not (place == 'leased' and announce_room(keys.wake, keys.meta, meta[2])) then
  take_wake_token_if_empty(keys.wake, keys.msgs, keys.meta)
end
return answer(1)
