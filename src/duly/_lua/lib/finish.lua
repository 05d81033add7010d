-- Finishes held messages. They are removed, or kept in `done` with the result of their handler.

-- @include lib/held_batch.lua
-- @include lib/leased.lua
-- @include lib/counts.lua
-- @include lib/history.lua
-- @include lib/lanes.lua
-- @include lib/trim.lua
-- @include lib/wake.lua
-- @include lib/limits.lua
-- @include lib/ends.lua

-- Moves one message to `done`, and returns its bytes. A message without a body is removed.
local function keep_finished(keys, id, lease, result, now, result_until)
  local bytes = redis.call('HSTRLEN', keys.msgs, id)
  if bytes == 0 then
    redis.call('HDEL', keys.msgs, id)
    redis.call('HDEL', keys.why, id)
  else
    local history = history_of(keys.why, id)
    add_event(history, now, 'ack', lease)
    local row = keep_full_history(keys.why, id, '', counts_of(keys.counts, id), history, result, result_until)
    add_row_bytes(keys, 'done', row)
    redis.call('ZADD', keys.done, now, id)
  end
  redis.call('HDEL', keys.counts, id)
  return bytes
end

local function keep_all_finished(keys, held, results, keep, now, result_until)
  local kept = 0
  for i, id in ipairs(held.ids) do
    kept = kept + keep_finished(keys, id, read_lease(held.texts[i]), results[i], now, result_until)
  end
  redis.call('HINCRBY', keys.meta, 'done_bytes', kept)
  trim(keys, 'done', keep, now, #held.ids)
  if not result_until then -- else keep_result announces the end
    announce_ends(keys, held.ids)
  end
end

local function forget_finished(keys, held)
  redis.call('HDEL', keys.msgs, unpack(held.ids))
  if #held.ids_with_rows > 0 then
    redis.call('HDEL', keys.counts, unpack(held.ids_with_rows))
    redis.call('HDEL', keys.why, unpack(held.ids_with_rows))
  end
end

-- `held` comes from lib/held_batch.lua and is not empty. `results` are those of the handlers, in the same order. `keep`
-- has the bounds of `done`, or is nil. `result_until` is until when a pending result may be stored, or nil. The caller
-- has checked everything, and stores the time.
local function finish(keys, held, results, keep, now, result_until)
  remove_leased(keys.leased, held.ids)
  redis.call('HDEL', keys.leases, unpack(held.ids))
  if keep then
    keep_all_finished(keys, held, results, keep, now, result_until)
  else
    forget_finished(keys, held)
  end
  local meta = redis.call('HMGET', keys.meta, 'acked', 'bytes', 'limited')
  redis.call('HSET', keys.meta, 'acked', (meta[1] or 0) + #held.ids, 'bytes', (meta[2] or 0) - held.size)
  if #held.owners > 0 and hand_on(keys, held.owners, now) then
    leave_wake_token(keys.wake)
  elseif not announce_room(keys.wake, keys.meta, meta[3]) then
    take_wake_token_if_empty(keys.wake, keys.msgs, keys.meta)
  end
end
