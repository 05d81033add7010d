-- The queue's clock, in microseconds. It is the server's clock, but it never goes back and never shows the same time
-- twice. So arrivals have a strict order, and no fence is used twice, not even after a fail-over or for a queue that
-- was deleted. If the server's clock steps back, no message is hidden.

-- `last` is the field `clock` of meta, or false. Returns the time, and how far the queue's clock is ahead of the
-- server's. A point in time from a caller must be moved by that, or it would come early.
local function tick(last)
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  if last and tonumber(last) >= now then
    return tonumber(last) + 1, tonumber(last) + 1 - now
  end
  return now, 0
end

-- Stores the time of a change: later changes must have a later time.
local function store_clock(meta, now)
  redis.call('HSET', meta, 'clock', now)
end
