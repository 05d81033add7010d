--[[
measure -- add lateness and handling times that a worker has collected to the history of a queue.

A worker calls it every 15 s, if it has claimed or handled messages since the last call. A queue without points has no
history: it was deleted, or no version that knows the history has used it.

KEYS     call, parked, meta, history, waiting*
ARGV     sequence  text
         digits    text
         lateness  text    microseconds in total, and the number of deliveries in each bucket, separated by commas
         handling  text    the same of handling times
DRAINS   meta
RETURNS  1  added
         0  the queue has no history, or one that cannot be read
KEEPS    I6 I9: no message is touched.
]]
-- @include lib/clock.lua
-- @include lib/points.lua
-- @include lib/backlog.lua
local MOST_NUMBERS = 32

local function numbers_of(text)
  local numbers = {}
  for number in string.gmatch(text or '', '%d+') do
    if #numbers < MOST_NUMBERS then
      numbers[#numbers + 1] = tonumber(number)
    end
  end
  return numbers
end

local function added(stored, text)
  local sums, more = numbers_of(stored), numbers_of(text)
  for i = 1, math.max(#sums, #more) do
    sums[i] = string.format('%.0f', (sums[i] or 0) + (more[i] or 0))
  end
  return table.concat(sums, ',')
end

local known = redis.call('HMGET', META, 'clock', 'point')
if not known[2] then
  return answer(0)
end
-- The minute ends for a queue whose handlers run for longer than that: their acks belong to the minutes of the acks.
local now = tick(known[1])
if is_point_due(known[2], now) then
  take_point(HISTORY, META, now, known[2], backlog(keys, now))
end
local sums = redis.pcall('HMGET', HISTORY, 'lateness', 'handling')
if sums.err then
  return answer(0) -- another program has overwritten the key: an audit removes it
end
redis.call('HSET', HISTORY, 'lateness', added(sums[1], lateness), 'handling', added(sums[2], handling))
redis.call('PEXPIRE', HISTORY, HISTORY_KEPT_MS)
return answer(1)
