-- How many entries a group has not read yet. The server often knows; where it does not, they are counted as far as
-- that is cheap, from either end, and beyond that estimated by time.

-- @include lib/entry_ids.lua

local COUNTED = 1000

local function ms_of(id)
  return tonumber(string.match(id, '^%d+'))
end

-- Counts entries up to COUNTED.
local function count_of(stream, from, to)
  return #redis.call('XRANGE', stream, from, to, 'COUNT', COUNTED)
end

local function unread_of(stream, group)
  local length = redis.call('XLEN', stream)
  if length == 0 or group.lag then
    return group.lag and math.min(group.lag, length) or 0
  end
  local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1][1]
  if is_before(group.last, first) then
    return length
  end
  local behind = count_of(stream, '(' .. group.last, '+')
  if behind < COUNTED then
    return behind
  end
  local before = count_of(stream, '-', group.last)
  if before < COUNTED then
    return length - before
  end
  local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1][1]
  local share = (ms_of(last) - ms_of(group.last)) / math.max(ms_of(last) - ms_of(first), 1)
  return math.max(math.min(math.floor(length * share), length - COUNTED), COUNTED)
end
