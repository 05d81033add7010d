-- Keeps finished messages in `done`, with the results of their handlers. The messages are those of lib/held_batch.lua.

-- @include lib/lease.lua
-- @include lib/counts.lua
-- @include lib/history.lua
-- @include lib/trim.lua
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
