-- Part of claim: a shortcut for the claim of an idle worker, which takes one message. The message waits for this
-- script, and a script creates all of its functions at every call. So this comes before them, and has none. It ends the
-- call if neither the queue nor its first message needs a decision. Otherwise it changes nothing, and the rest of claim
-- decides. Reads the store, and what claim has read of meta.

local is_idle_claim = after == 'behind' and limit == 1 and interval == 0 and in_flight < 0
local is_plain_queue = in_use == '0' and not (meta[6] or was_limited or needs_point) and (slot or math.huge) > time
if is_idle_claim and is_plain_queue then
  local before, waiting0 = redis.call('GET', CALL), waiting.key('0')
  local is_new = not before or struct.unpack('<d', before) < struct.unpack('<d', sequence)
  local found = redis.call('ZRANGE', waiting0, 0, 1, 'WITHSCORES')
  local id, due, next_due = found[1], tonumber(found[2]) or math.huge, tonumber(found[4]) or math.huge
  local first_deadline = tonumber(redis.call('ZRANGE', LEASED, 0, 0, 'WITHSCORES')[2]) or math.huge
  if is_new and due <= time and first_deadline > time and redis.call('EXISTS', COUNTS, EXPIRES) == 0 then
    local record = redis.call('HGET', MSGS, id) or ''
    local flags, priority = string.byte(record, FLAGS_AT, PRIORITY_AT)
    if flags == 0 and priority and priority <= 9 then
      local deadline, lateness = time + lease_us, math.max(time - struct.unpack('<d', record, DUE_AT), 0)
      local lease = struct.pack(LEASE_FORMAT, time, #record, flags, priority) .. consumer
      redis.call('ZREM', waiting0, id)
      redis.call('ZADD', LEASED, '+inf', ENCODING_GUARD, string.format('%.0f', deadline), id)
      redis.call('HSET', LEASES, id, lease .. string.rep(' ', LEASE_TEXT_SIZE - #lease))
      redis.call('HSET', META, 'clock', time, 'lateness', lateness, 'delivered', (meta[5] or 0) + 1)
      local next_at = math.min(slot or math.huge, first_deadline, deadline, next_due)
      if next_at > time then
        redis.call('DEL', WAKE) -- this consumer watches from now on
      elseif redis.call('LLEN', WAKE) == 0 then
        redis.call('RPUSH', WAKE, 1)
      end
      redis.call('SET', CALL, sequence .. cmsgpack.pack({ time, { id } }), 'PX', kept_ms)
      return { OPEN, time, math.max(next_at - time, 0), time, { id }, { record }, {}, {}, {} }
    end
  end
end
