-- `repeated` is the stored reply of a repeated call, or false for a new call. An overtaken call ends here.

-- @include lib/call.lua

local repeated = redis.call('GET', CALL)
if repeated then
  local last, this = struct.unpack('<d', repeated), struct.unpack('<d', sequence)
  if this < last then
    return redis.error_reply('OVERTAKEN call ' .. this .. ' of a stream that is at ' .. last)
  end
  if this > last then
    repeated = false
  else
    -- A write, so that a WAIT or WAITAOF after a repeated call has something to wait for.
    redis.call('PEXPIRE', CALL, kept_ms)
    repeated = cmsgpack.unpack(string.sub(repeated, 9))
  end
end
