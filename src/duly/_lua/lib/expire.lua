-- Messages past their ttl: dropped and counted, a bounded number a call. Leased ones are not in
-- `expires`: their holder may finish them.

-- @include lib/record.lua
-- @include lib/lanes.lua
-- @include lib/wake.lua

local EXPIRED_A_CALL = 100 -- beside what the call brings in

local function drop_expired(keys, id, record, now)
  stop_waiting(keys, id, record)
  if leave_lane(keys, id, record, now) then
    leave_token(keys.wake)
  end
  free_dedup(keys, id, record)
  forget(keys, id)
  redis.call('HINCRBY', keys.meta, 'bytes', 0 - #record)
  redis.call('HINCRBY', keys.meta, 'expired', 1)
end

-- `keys.waiting` must hold every priority. A flawed record is left to the claim that meets it. Returns
-- how many were looked at.
local function expire_some(keys, now, brought_in)
  local over = redis.call('ZRANGEBYSCORE', keys.expires, '-inf', now, 'LIMIT', 0, brought_in + EXPIRED_A_CALL)
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
