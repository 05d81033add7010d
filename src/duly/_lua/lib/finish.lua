-- Finishes held messages. They are removed, or kept in `done` with the result of their handler: the script has
-- lib/keep_finished.lua before this file.

-- @include lib/held_batch.lua
-- @include lib/leased.lua
-- @include lib/lanes.lua
-- @include lib/wake.lua
-- @include lib/limits.lua

local function forget_finished(keys, held)
  redis.call('HDEL', keys.msgs, unpack(held.ids))
  if #held.ids_with_rows > 0 then
    redis.call('HDEL', keys.counts, unpack(held.ids_with_rows))
    redis.call('HDEL', keys.why, unpack(held.ids_with_rows))
  end
end

-- `held` comes from lib/held_batch.lua and is not empty. `results` are those of the handlers, in the same order. `keep`
-- has the bounds of `done`, or is nil. `result_until` is until when a pending result may be stored, or nil. The caller
-- has checked everything.
local function finish(keys, held, results, keep, now, result_until)
  remove_leased(keys.leased, held.ids)
  redis.call('HDEL', keys.leases, unpack(held.ids))
  if keep then
    keep_all_finished(keys, held, results, keep, now, result_until)
  else
    forget_finished(keys, held)
  end
  local meta = redis.call('HMGET', keys.meta, 'acked', 'bytes', 'limited')
  local acked, bytes = (meta[1] or 0) + #held.ids, (meta[2] or 0) - held.size
  redis.call('HSET', keys.meta, 'clock', now, 'acked', acked, 'bytes', bytes)
  if #held.owners > 0 and hand_on(keys, held.lanes, held.owners, now) then
    leave_wake_token(keys.wake)
  elseif not announce_room(keys.wake, keys.meta, meta[3]) then
    take_wake_token_if_empty(keys.wake, keys.msgs, keys.meta)
  end
end
