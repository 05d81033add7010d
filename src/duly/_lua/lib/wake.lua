-- Consumers block on `wake`, never on data. One token says: something changed, somebody look.

local function leave_token(wake)
  if redis.call('LLEN', wake) == 0 then
    redis.call('RPUSH', wake, 1)
  end
end

-- A queue that holds nothing has nothing to announce: it leaves no key behind (I9).
local function take_token_if_empty(wake, msgs)
  if redis.call('HLEN', msgs) == 0 then
    redis.call('DEL', wake)
  end
end
