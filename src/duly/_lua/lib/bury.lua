-- Makes a live message a dead letter. The record stays, and `why` has the reason. The caller has removed the message
-- from its live place. Afterwards it trims `dead`, or calls store_row_bytes().

-- @include lib/lanes.lua
-- @include lib/row_bytes.lua

-- `counted` has the final counts, with `rejects` if the last delivery was rejected. `history` has errors and timeline.
-- `size` is the message's share of `bytes`. `key` is its lane, if it is known to have one. Without a record the reason
-- is `body lost`. With `keys.blocks` a dead letter keeps its lane. Returns true if another message of the lane may be
-- claimed now.
local function bury(keys, id, record, size, reason, counted, history, now, key)
  local row = keep_full_history(keys.why, id, record and reason or 'body lost', counted, history, '')
  add_row_bytes(keys, 'dead', row)
  redis.call('ZADD', keys.dead, now, id)
  redis.call('HDEL', keys.counts, id)
  redis.call('ZREM', keys.expires, id)
  redis.call('HINCRBY', keys.meta, 'buried', 1)
  redis.call('HINCRBY', keys.meta, 'bytes', 0 - size)
  if record then
    redis.call('HINCRBY', keys.meta, 'dead_bytes', #record)
  end
  -- A flawed message cannot be redriven, so it must not block its lane.
  local is_waited_for = keys.blocks and not flaw_of(record)
  return key and not is_waited_for and hand_on(keys, { key }, { id }, now) or false
end
