-- `waiting` is one sorted set a priority in use. They are the last KEYS, in the order of `digits`, and
-- the field `priorities` of meta names those in use, highest first; without it only 0 is.

local function waiting_by_priority(first, digits)
  local waiting = {}
  if #digits == 10 then -- all of them, highest first
    for priority = 0, 9 do
      waiting[priority] = KEYS[first + 9 - priority]
    end
    return waiting
  end
  for i = 1, #digits do
    waiting[tonumber(string.sub(digits, i, i))] = KEYS[first + i - 1]
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

-- The sorted sets of `digits`, in that order, as { priority, key }.
local function places_of_digits(waiting, digits)
  local places = {}
  for digit in string.gmatch(digits, '%d') do
    local priority = tonumber(digit)
    places[#places + 1] = { priority = priority, key = waiting[priority] }
  end
  return places
end
