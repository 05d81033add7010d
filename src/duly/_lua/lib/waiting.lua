-- `waiting` is one sorted set per priority. They are in KEYS in the order of `digits`. The field `priorities` of meta
-- names the priorities in use, the highest first; without it only 0 is in use.

-- Returns the keys by priority. The first of them is at position `first` of KEYS.
local function waiting_by_priority(first, digits)
  if #digits == 10 then -- all of them, the highest first; without a loop, because most calls have all
    local w9, w8, w7, w6, w5, w4, w3, w2, w1, w0 = unpack(KEYS, first, first + 9)
    return { [0] = w0, w1, w2, w3, w4, w5, w6, w7, w8, w9 }
  end
  local waiting = {}
  for i, key in ipairs({ unpack(KEYS, first, first + #digits - 1) }) do
    waiting[tonumber(string.sub(digits, i, i))] = key
  end
  return waiting
end

local function with_priority(in_use, priority)
  local digit = tostring(priority)
  if string.find(in_use, digit, 1, true) then
    return in_use
  end
  local higher, lower = '', ''
  for each in string.gmatch(in_use, '%d') do
    if tonumber(each) > priority then
      higher = higher .. each
    else
      lower = lower .. each
    end
  end
  return higher .. digit .. lower
end

-- Returns the sorted sets of `digits` in that order, as { priority, key }.
local function places_of_digits(waiting, digits)
  local places = {}
  for digit in string.gmatch(digits, '%d') do
    local priority = tonumber(digit)
    places[#places + 1] = { priority = priority, key = waiting[priority] }
  end
  return places
end

-- Returns ids of due messages of one priority, beginning at an offset.
local function due_in(waiting, now, offset, count)
  return redis.call('ZRANGEBYSCORE', waiting, '-inf', now, 'LIMIT', offset, count)
end
