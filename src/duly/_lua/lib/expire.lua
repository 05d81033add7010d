-- Drops and counts expired messages, a bounded number per call. Leased messages are not in `expires`: their holder may
-- finish them.

-- @include lib/record.lua
-- @include lib/lanes.lua
-- @include lib/wake.lua

local EXPIRED_PER_CALL = 100 -- in addition to the number that the call adds

local function drop_expired(keys, id, record, now)
  stop_waiting(keys, id, record)
  if leave_lane(keys, id, record, now) then
    leave_wake_token(keys.wake)
  end
  free_dedup(keys, id, record)
  forget(keys, id)
  redis.call('HINCRBY', keys.meta, 'bytes', 0 - #record)
  redis.call('HINCRBY', keys.meta, 'expired', 1)
end

-- `keys.waiting` must have every priority. Messages with a flawed record are left to a claim. Returns how many messages
-- were checked.
local function expire_some(keys, now, added)
  local over = redis.call('ZRANGEBYSCORE', keys.expires, '-inf', now, 'LIMIT', 0, added + EXPIRED_PER_CALL)
  for _, id in ipairs(over) do
    local record = redis.call('HGET', keys.msgs, id)
    if flaw_of(record) then
      redis.call('ZREM', keys.expires, id)
    else
      drop_expired(keys, id, record, now)
    end
  end
  return #over
end
