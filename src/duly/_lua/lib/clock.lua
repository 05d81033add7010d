-- The queue's clock, in microseconds: the server's, but it never goes back and never shows the same
-- time twice. So arrivals have a strict order, a fence is never given out again (not even after a
-- fail-over or a deleted queue), and a server clock that steps back hides nothing.

-- `last` is the field `clock` of meta, or false. The second value is how far the queue's clock is ahead of
-- the server's: a point in time that somebody names must be moved by it, or it would come early.
local function tick(last)
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  if last and tonumber(last) >= now then
    return tonumber(last) + 1, tonumber(last) + 1 - now
  end
  return now, 0
end

-- Whatever was done at `now` must not lie ahead of what is done next.
local function remember(meta, now)
  redis.call('HSET', meta, 'clock', now)
end
