-- Removes the data of a message except its place (I2, I9). The caller removes the place and counts the reason.

-- Frees the dedup value of a message that ends undelivered, unless a later message has taken it.
local function free_dedup(keys, id, record)
  local options = not flaw_of(record) and options_of(record)
  local value = options and options.dedup
  if value and redis.call('HGET', keys.dedup, value) == id then
    redis.call('HDEL', keys.dedup, value)
    redis.call('ZREM', keys.dedup_ends, value)
  end
end

local function forget(keys, id)
  redis.call('HDEL', keys.msgs, id)
  redis.call('HDEL', keys.counts, id)
  redis.call('HDEL', keys.why, id)
  redis.call('ZREM', keys.expires, id)
end
