-- Calls that may be repeated (I6).
--
-- A stream of calls belongs to one connection slot of one process and has one call outstanding.
-- Its key holds the sequence number and the reply of its last call: a reply that was lost on the way
-- is given again, and a request that arrives after its successor is refused.

local CALL_KEPT_MS = 3600000

-- The stored reply of a repeated call, an error for an overtaken one, nil for a new one.
local function answered(call, sequence)
  local stored = redis.call('GET', call)
  if not stored then
    return nil
  end
  local last = struct.unpack('<d', stored)
  if sequence > last then
    return nil
  end
  if sequence < last then
    return redis.error_reply('OVERTAKEN call ' .. sequence .. ' of a stream that is at ' .. last)
  end
  -- A write, so that a WAIT or WAITAOF after a repeated call has something to wait for.
  redis.call('PEXPIRE', call, CALL_KEPT_MS)
  return cmsgpack.unpack(string.sub(stored, 9))
end

local function answer(call, sequence, reply)
  redis.call('SET', call, struct.pack('<d', sequence) .. cmsgpack.pack(reply), 'PX', CALL_KEPT_MS)
  return reply
end
