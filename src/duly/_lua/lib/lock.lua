-- The hash `holder` of a lock: `token` (the lock token), until, fence and by of the holder, or of the last one. It is
-- kept for an hour after the lock is free, so that fences grow even if the server's clock steps back. Then it expires.
-- @include lib/wake.lua

local HOLDER_KEPT_MS = 3600000
local WAKE_KEPT_MS = 60000 -- a caller that comes later checks the lock before it waits

local function expire_holder(holder, held_us)
  redis.call('PEXPIRE', holder, math.ceil(held_us / 1000) + HOLDER_KEPT_MS)
end

-- Whether the holding with this lock token has the lock now.
local function has_lock(holder, lock_token, now)
  local known = redis.call('HMGET', holder, 'token', 'until')
  return known[1] == lock_token and tonumber(known[2]) > now
end

-- Wakes one caller that waits for the lock.
local function wake_one(wake)
  leave_wake_token(wake)
  redis.call('PEXPIRE', wake, WAKE_KEPT_MS)
end
