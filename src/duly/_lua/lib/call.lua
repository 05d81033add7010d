-- Calls that may be repeated (I6).
--
-- A stream of calls belongs to one connection slot of one process and has one call outstanding.
-- Its key holds the number of its last call, as the eight bytes of a double, and the reply: a reply that
-- was lost on the way is given again, and a request that arrives after its successor is refused.

local function answer(reply)
  redis.call('SET', CALL, sequence .. cmsgpack.pack(reply), 'PX', kept_ms)
  return reply
end
