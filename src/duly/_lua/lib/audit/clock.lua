-- Part of audit: the clock of the queue, and the rate that goes by it.
-- READS    meta: `clock`, `tat`; every key that has times; now
-- CHANGES  meta: `clock`, `swept`, `trimmed_at`, `tat`, `limited`; wake
-- GIVES    check_clock(), which returns what time it is after a repair; check_rate()

local check_clock, check_rate
do
  -- A server whose clock was set back leaves a queue's clock ahead until it is caught up with, and that is no fault. So
  -- far ahead, leases and delays would not end for days.
  local FAR_AHEAD_US = 86400000000 -- a day

  -- Whether something that is stored has a time from the clock, or may have been handed out by it: then the next fence
  -- must be larger, and the clock stays. Far ahead it stands nearly still: all that it gave is within a day of it.
  local function is_clock_in_use(clock)
    if redis.call('EXISTS', keys.leases, keys.counts, keys.parked) > 0 then
      return true
    end
    local timed = { keys.dead, keys.done, keys.dedup_ends, keys.slots }
    for _, key in pairs(keys.waiting) do
      timed[#timed + 1] = key
    end
    for _, key in ipairs(timed) do
      if redis.call('ZCOUNT', key, clock, '+inf') > 0 then
        return true
      end
    end
    return false
  end

  -- Nobody is kept back by a rate any more until a claim says so.
  local function clear_limit()
    if redis.call('HDEL', keys.meta, 'limited') == 1 then
      leave_token(keys.wake)
    end
  end

  -- The rate goes on as the clock does: what is left of its interval is left of it then.
  local function put_back_rate(first, ahead)
    local tat = tonumber(redis.call('HGET', keys.meta, 'tat') or 0)
    if tat >= first then
      redis.call('HSET', keys.meta, 'tat', string.format('%.0f', math.max(tat - ahead, 0)))
    end
    clear_limit()
  end

  function check_clock()
    local clock = redis.call('HGET', keys.meta, 'clock')
    local time, _, ahead = now, tick(clock)
    if ahead > FAR_AHEAD_US then
      fault('clock', 'a clock that is far ahead', function()
        local first = tonumber(clock) - FAR_AHEAD_US
        if not is_clock_in_use(string.format('%.0f', first)) then
          redis.call('HDEL', keys.meta, 'clock', 'swept', 'trimmed_at')
          put_back_rate(first, ahead)
          time = tick(false)
        end
      end)
    end
    return time
  end

  -- No rate is slower than one in ten years. A nearer time is brought back by the next claim, which knows its rate.
  function check_rate()
    if tonumber(redis.call('HGET', keys.meta, 'tat') or 0) > now + LONGEST_US then
      fault('tat', 'a rate without an end', function()
        redis.call('HDEL', keys.meta, 'tat')
        clear_limit()
      end)
    end
  end
end
