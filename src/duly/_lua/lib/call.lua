-- Calls that may be repeated (I6).
--
-- A stream of calls belongs to one connection slot of one process and has one call outstanding.
-- Its key holds the number of its last call, as the eight bytes of a double, and the reply: a reply that
-- was lost on the way is given again, and a request that arrives after its successor is refused.

local CALL_KEPT_MS = 3600000

-- The stored reply of a repeated call, an error for an overtaken one, nil for a new one.
-- `kept_ms` is how long the record is kept where that is not an hour.
local function answered(call, sequence, kept_ms)
  local stored = redis.call('GET', call)
  if not stored then
    return nil
  end
  local last, this = struct.unpack('<d', stored), struct.unpack('<d', sequence)
  if this > last then
    return nil
  end
  if this < last then
    return redis.error_reply('OVERTAKEN call ' .. this .. ' of a stream that is at ' .. last)
  end
  -- A write, so that a WAIT or WAITAOF after a repeated call has something to wait for.
  redis.call('PEXPIRE', call, kept_ms or CALL_KEPT_MS)
  return cmsgpack.unpack(string.sub(stored, 9))
end

local function answer(call, sequence, reply, kept_ms)
  redis.call('SET', call, sequence .. cmsgpack.pack(reply), 'PX', kept_ms or CALL_KEPT_MS)
  return reply
end
