--[[
forecast -- count the messages that become due in each of some intervals from now on.

Intervals end at multiples of `step` since the epoch. The first begins now, and the last ends at `ahead` from now.

KEYS     meta, waiting*
ARGV     digits  text
         ahead   number  microseconds
         step    number  microseconds
RETURNS  { now, count ... }  one count per interval: messages that are due after its start, and not after its end
KEEPS    I11: at most 100 intervals, each with one ZCOUNT per priority in use. Writes nothing.
]]
-- @include lib/clock.lua
-- @include lib/waiting.lua
local INTERVALS_PER_CALL = 100

local function text_of(us)
  return string.format('%.0f', us)
end

local meta = redis.call('HMGET', META, 'clock', 'priorities')
local now = tick(meta[1])
local places = places_of_digits(keys.waiting, meta[2] or '0')
local reply, from, last = { now }, now, now + ahead
while from < last do
  if #reply > INTERVALS_PER_CALL then
    return redis.error_reply('ERR a forecast has at most ' .. INTERVALS_PER_CALL .. ' intervals')
  end
  local to = math.min(from - from % step + step, last)
  local count = 0
  for _, place in ipairs(places) do
    count = count + redis.call('ZCOUNT', place.key, '(' .. text_of(from), text_of(to))
  end
  reply[#reply + 1] = count
  from = to
end
return reply
