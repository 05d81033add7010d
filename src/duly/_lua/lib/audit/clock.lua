-- Part of audit: the queue's clock, and the rate that depends on it.
-- READS    meta: `clock`, `tat`; leases, counts, parked, dead, done, dedup_ends, slots, waiting*; now
-- CHANGES  meta: `clock`, `swept`, `trimmed_at`, `tat`, `limited`; wake
-- GIVES    check_clock(), which returns the time after it; check_rate()

local check_clock, check_rate
do
  -- After the server's clock was set back, the queue's clock is ahead and waits for it. That is not a fault. But if it
  -- is this far ahead, no lease or delay ends for days.
  local FAR_AHEAD_US = 86400000000 -- a day

  -- Whether anything stored may have a time or a fence from the clock. The next fence must be larger, so the clock
  -- stays. While it is ahead it hardly moves, so all times from it are later than a day before it.
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

  -- Lets consumers claim at once. The next claim stores again how long the rate holds them back.
  local function clear_limit()
    if redis.call('HDEL', keys.meta, 'limited') == 1 then
      leave_wake_token(keys.wake)
    end
  end

  -- Moves the rate back with the clock, so that the rest of its interval stays the same.
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

  -- No rate is slower than one message in ten years. The next claim knows its rate, and corrects an earlier time.
  function check_rate()
    if tonumber(redis.call('HGET', keys.meta, 'tat') or 0) > now + LONGEST_US then
      fault('tat', 'a rate without an end', function()
        redis.call('HDEL', keys.meta, 'tat')
        clear_limit()
      end)
    end
  end
end
