-- Calls that may be repeated (I6).
--
-- A stream of calls belongs to one process, and has one call outstanding at a time. Its key holds the number of its
-- last call, as the eight bytes of a double, and the reply. If a reply was lost, the repeated call gets it again. A
-- call that arrives after its successor is refused.

local function answer(reply)
  redis.call('SET', CALL, sequence .. cmsgpack.pack(reply), 'PX', kept_ms)
  return reply
end
