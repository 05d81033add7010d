--[[
once -- may this delivery cause an effect that happens at most once?

KEYS     call, once
ARGV     sequence    text
         queue       text    of the message
         id          text    of the message
         sent        text    when it was sent, or recycled last
         fence       number  of the delivery
         deliveries  number  of the message so far, this one included
         crashes     number  of the message so far
         redrives    number  of the message so far
         ttl_us      number  microseconds
RETURNS  1  yes, and it is noted
         0  no: somebody else may, or nobody knows whether it has happened
KEEPS    no message is touched; at most one living delivery may.
]]
local NOBODY_KNOWS = -1 -- in place of crashes

-- An earlier delivery of the same message may; whether it did is another question.
local function is_of_this_message(noted)
  return noted[1] == queue and noted[2] == id and noted[3] == sent and noted[4] < fence
end

-- Whoever had the message gave it back alive. When leases ran out since, one may have died on either side of
-- the effect. When it was redriven nobody can tell of what it had died.
local function was_given_back(noted)
  return noted[5] < deliveries and noted[6] == crashes and noted[7] == redrives
end

-- Opens the door of a full server, as lib/drain.lua says: there is no hash here to remove nothing from.
redis.call('PEXPIRE', CALL, kept_ms)
local stored = redis.call('GET', ONCE)
local noted = stored and cmsgpack.unpack(stored)
local is_later = noted and is_of_this_message(noted)
if noted and not (is_later and was_given_back(noted)) then
  if is_later then
    noted[6] = NOBODY_KNOWS -- and nobody will
    redis.call('SET', ONCE, cmsgpack.pack(noted), 'KEEPTTL')
  end
  return answer(0)
end
noted = { queue, id, sent, fence, deliveries, crashes, redrives }
redis.call('SET', ONCE, cmsgpack.pack(noted), 'PX', math.ceil(ttl_us / 1000))
return answer(1)
