--[[
once -- decide whether this delivery may cause an effect that happens at most once.

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
RETURNS  1  yes, and the delivery is stored
         0  no: another delivery may, or it is unknown whether the effect has happened
KEEPS    no message is touched; at most one live delivery may cause the effect.
]]
local UNKNOWN = -1 -- in place of the number of crashes

-- Whether an earlier delivery of the same message was allowed to cause the effect.
local function is_of_this_message(noted)
  return noted[1] == queue and noted[2] == id and noted[3] == sent and noted[4] < fence
end

-- Whether that delivery ended without a crash. A consumer that crashed may have caused the effect or not. After a
-- redrive it is unknown how the earlier deliveries ended.
local function was_given_back(noted)
  return noted[5] < deliveries and noted[6] == crashes and noted[7] == redrives
end

-- Lets a full server run the script, as lib/drain.lua does. There is no hash here to remove a field from.
redis.call('PEXPIRE', CALL, kept_ms)
local stored = redis.call('GET', ONCE)
local noted = stored and cmsgpack.unpack(stored)
local is_later = noted and is_of_this_message(noted)
if noted and not (is_later and was_given_back(noted)) then
  if is_later then
    noted[6] = UNKNOWN -- for all later deliveries
    redis.call('SET', ONCE, cmsgpack.pack(noted), 'KEEPTTL')
  end
  return answer(0)
end
noted = { queue, id, sent, fence, deliveries, crashes, redrives }
redis.call('SET', ONCE, cmsgpack.pack(noted), 'PX', math.ceil(ttl_us / 1000))
return answer(1)
