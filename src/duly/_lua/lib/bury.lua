-- Makes a live message dead: the record stays, `why` says the reason. The caller has removed it from
-- its live place, and calls trim afterwards.

-- @include lib/lanes.lua

-- `counted` are the final counts, with `rejects` when a delivery ended in a reject; `past` what is kept of
-- its errors and timeline; `size` what the message counts in `bytes`; `key` its lane, if it is known to have one.
-- Without a record the reason is that. `keys.blocks`: the lane waits for a dead message. True: another of its lane
-- may be claimed now.
local function bury(keys, id, record, size, reason, counted, past, now, key)
  redis.call('ZADD', keys.dead, now, id)
  keep_end(keys.why, id, record and reason or 'body lost', counted, past, '')
  redis.call('HDEL', keys.counts, id)
  redis.call('ZREM', keys.expires, id)
  redis.call('HINCRBY', keys.meta, 'buried', 1)
  redis.call('HINCRBY', keys.meta, 'bytes', 0 - size)
  if record then
    redis.call('HINCRBY', keys.meta, 'dead_bytes', #record)
  end
  -- What cannot be delivered can neither be redriven: nobody waits for it.
  local is_waited_for = keys.blocks and not flaw_of(record)
  return key and not is_waited_for and hand_on(keys, { key, id }, now) or false
end
