-- The history of a queue: points, each of which shows the counters before the first send or claim of a minute. The
-- difference of two points is what happened between them. Rings of a fixed size hold the points.

local POINT_US = 60000000
local RINGS = {
  { name = 'm', minutes = 1, size = 60 },
  { name = 't', minutes = 10, size = 144 },
  { name = 'h', minutes = 60, size = 168 },
}
local HISTORY_KEPT_MS = 691200000 -- eight days. A version that does not know the key cannot delete it

-- Whether the minute of the last point has ended. It is in the future if an audit has set the clock back.
local function is_point_due(ends, now)
  local left = (ends or 0) - now
  return left <= 0 or left > POINT_US
end

-- Stores a point. `ends` is the field `point` of meta: when the minute of the last point ends, or false if the queue
-- has no history. `depth` and `oldest_age` are the results of `backlog`, or -1 if the caller does not know them.
local function take_point(history, meta, now, ends, depth, oldest_age)
  local minute = math.floor(now / POINT_US)
  local last = ends and math.floor(ends / POINT_US) - 1 or -1
  redis.call('HSET', meta, 'point', (minute + 1) * POINT_US)
  if not ends then
    redis.call('DEL', history) -- of a queue that a version without history has deleted
  end
  local sums = redis.pcall('HMGET', history, 'lateness', 'handling')
  if sums.err then
    return -- another program has overwritten the key: an audit removes it
  end
  local counted = redis.call('HMGET', meta, 'sent', 'delivered', 'acked', 'retried', 'crashed', 'buried', 'expired')
  for i = 1, #counted do
    counted[i] = counted[i] or '0'
  end
  local point = string.format('%.0f %s %.0f %.0f ', now, table.concat(counted, ' '), depth, oldest_age)
  point = point .. (sums[1] or '0') .. ' ' .. (sums[2] or '0')
  local fields = {}
  for _, ring in ipairs(RINGS) do
    local at = math.floor(minute / ring.minutes)
    if at ~= math.floor(last / ring.minutes) then
      fields[#fields + 1] = ring.name .. at % ring.size
      fields[#fields + 1] = point
    end
  end
  redis.call('HSET', history, unpack(fields))
  redis.call('PEXPIRE', history, HISTORY_KEPT_MS)
end
