-- What a lock's `holder` says: token, until, fence and by of whoever has the lock, or had it last.
--
-- It is kept for an hour after the lock is free, so that fences grow whatever the server's clock does;
-- after that the lock costs nothing.
-- @include lib/wake.lua

local HOLDER_KEPT_MS = 3600000
local WAKE_KEPT_MS = 60000 -- who comes later than that looks before it waits

local function keep_holder(holder, held_us)
  redis.call('PEXPIRE', holder, math.ceil(held_us / 1000) + HOLDER_KEPT_MS)
end

-- Whether somebody with this token has the lock now.
local function has_lock(holder, token, now)
  local known = redis.call('HMGET', holder, 'token', 'until')
  return known[1] == token and tonumber(known[2]) > now
end

-- One of those who wait for the lock looks again.
local function wake_one(wake)
  leave_token(wake)
  redis.call('PEXPIRE', wake, WAKE_KEPT_MS)
end
