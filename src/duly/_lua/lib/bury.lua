-- Makes a live message dead: the record stays, `why` says the reason. The caller has removed it from
-- its live place, and calls trim afterwards.

-- `counted` are the final counts; `errors` the errors kept. `size` is 0 when the body is lost.
local function bury(keys, id, size, reason, counted, errors, now)
  redis.call('ZADD', keys.dead, now, id)
  redis.call(
    'HSET', keys.why, id,
    cmsgpack.pack({ reason, counted[FAILURES], counted[CRASHES], counted[DEFERS], counted[RELEASES], errors })
  )
  redis.call('HDEL', keys.counts, id)
  redis.call('ZREM', keys.expires, id)
  redis.call('HINCRBY', keys.stats, 'buried', 1)
  if size > 0 then
    redis.call('HINCRBY', keys.stats, 'bytes', -size)
    redis.call('HINCRBY', keys.stats, 'dead_bytes', size)
  end
end
