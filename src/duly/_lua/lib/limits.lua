-- The field `limited` of meta: until when `rate` holds messages back, or 0 while `max_in_flight` does.

local UNTIL_A_LEASE_ENDS = '0'

-- Called when leases have ended: wakes a consumer if `max_in_flight` held messages back.
local function announce_room(wake, meta, limited)
  if limited ~= UNTIL_A_LEASE_ENDS then
    return false
  end
  redis.call('HDEL', meta, 'limited')
  leave_wake_token(wake)
  return true
end

-- Whether a limit holds messages back at `now`, so that a token would wake a consumer for nothing.
local function is_limited(limited, now)
  return limited and (limited == UNTIL_A_LEASE_ENDS or tonumber(limited) > now)
end
