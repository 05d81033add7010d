-- Dedup windows: the first message with a dedup value, and until when the value counts.

-- Opens a window of `window` microseconds. The keys expire with their last window.
local function open_window(keys, now, id, value, window)
  redis.call('HSET', keys.dedup, value, id)
  redis.call('ZADD', keys.dedup_ends, now + window, value)
  local ms = math.ceil(window / 1000) + 1000
  if redis.call('PTTL', keys.dedup) < ms then
    redis.call('PEXPIRE', keys.dedup, ms)
    redis.call('PEXPIRE', keys.dedup_ends, ms)
  end
end

-- Closes at most `most` windows that have ended, and returns how many it closed.
local function close_windows(keys, now, most)
  local over = redis.call('ZRANGEBYSCORE', keys.dedup_ends, '-inf', now, 'LIMIT', 0, most)
  if #over > 0 then
    redis.call('ZREM', keys.dedup_ends, unpack(over))
    redis.call('HDEL', keys.dedup, unpack(over))
  end
  return #over
end
