-- Dedup windows that have ended: nobody asks for them again.

-- Closes at most `most` and returns how many it closed.
local function close_windows(keys, now, most)
  local over = redis.call('ZRANGEBYSCORE', keys.dedup_ends, '-inf', now, 'LIMIT', 0, most)
  if #over > 0 then
    redis.call('ZREM', keys.dedup_ends, unpack(over))
    redis.call('HDEL', keys.dedup, unpack(over))
  end
  return #over
end
