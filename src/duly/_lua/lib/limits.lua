-- `limited` of meta: until when `rate` keeps messages back, or 0 while `max_in_flight` does. Absent: not limited.

local UNTIL_A_LEASE_ENDS = '0'

-- Leases ended: if that is what consumers wait for, one of them should look.
local function announce_room(wake, meta, limited)
  if limited ~= UNTIL_A_LEASE_ENDS then
    return false
  end
  redis.call('HDEL', meta, 'limited')
  leave_token(wake)
  return true
end

-- Whether a token would be in vain at `now`.
local function is_limited(limited, now)
  return limited and (limited == UNTIL_A_LEASE_ENDS or tonumber(limited) > now)
end
