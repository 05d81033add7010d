-- Part of claim, for groups: members that are gone.

-- A consumer that has nothing pending leaves no trace; should it live, its next read makes it known again.
local function forget_consumer(name)
  local pending = redis.pcall('XPENDING', STREAM, GROUP, '-', '+', 1, name)
  if not pending.err and #pending == 0 then -- an error: somebody has removed the group
    redis.call('XGROUP', 'DELCONSUMER', STREAM, GROUP, name)
  end
end
