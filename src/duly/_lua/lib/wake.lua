-- Consumers block on `wake`, never on data. One token says: something changed, somebody look.

-- @include lib/token.lua

-- Whether anything is to be watched: a message, or the next slot of a schedule.
local function is_anything_to_come(msgs, meta)
  return redis.call('HLEN', msgs) > 0 or redis.call('HEXISTS', meta, 'slot') == 1
end

-- A queue that has nothing to come has nothing to announce: it leaves no key behind (I9).
local function take_token_if_empty(wake, msgs, meta)
  if not is_anything_to_come(msgs, meta) then
    redis.call('DEL', wake)
  end
end
