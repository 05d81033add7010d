-- Leaves the wake token of a queue, or rings the bell of a topic or group: a commit may need both.

local function leave_wake_token(wake)
  if string.find(wake, '{@', 1, true) then
    redis.call('XADD', wake, 'MAXLEN', 1, '*', 'rung', 1)
  elseif redis.call('LLEN', wake) == 0 then
    redis.call('RPUSH', wake, 1)
  end
end
