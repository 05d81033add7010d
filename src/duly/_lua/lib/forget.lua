-- Removes what belongs to a message beside its place (I2, I9). The caller removes the place itself and
-- counts why.

-- Gives a dedup value back, unless a later message has it by now.
local function free_dedup(keys, id, record)
  local value = options_of(record).dedup
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
