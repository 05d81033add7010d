-- Makes a live message dead: the record stays, `why` says the reason. The caller has removed it from
-- its live place, and calls trim afterwards.

-- `counted` are the final counts, with `rejects` when a delivery ended in a reject; `errors` the errors
-- kept; `size` what the message counts in `bytes`. Without a record the reason is that.
local function bury(keys, id, record, size, reason, counted, errors, now)
  redis.call('ZADD', keys.dead, now, id)
  redis.call('HSET', keys.why, id, cmsgpack.pack({
    record and reason or 'body lost',
    counted[FAILURES],
    counted[CRASHES],
    counted[DEFERS],
    counted[RELEASES],
    errors,
    counted.rejects or 0,
  }))
  redis.call('HDEL', keys.counts, id)
  redis.call('ZREM', keys.expires, id)
  redis.call('HINCRBY', keys.meta, 'buried', 1)
  redis.call('HINCRBY', keys.meta, 'bytes', 0 - size)
  if record then
    redis.call('HINCRBY', keys.meta, 'dead_bytes', #record)
  end
end
