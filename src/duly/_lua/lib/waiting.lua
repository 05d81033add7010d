-- `waiting` is one sorted set a priority in use. They are the last KEYS, in the order of `digits`.

local function waiting_by_priority(first, digits)
  local waiting = {}
  for i = 1, #digits do
    waiting[tonumber(string.sub(digits, i, i))] = KEYS[first + i - 1]
  end
  return waiting
end

-- The priorities in use, highest first, as a string of digits; `stored` is the field of meta.
local function priorities_in_use(stored)
  return stored or '0'
end

local function with_priority(in_use, priority)
  local digit = tostring(priority)
  if string.find(in_use, digit, 1, true) then
    return in_use
  end
  local higher, lower = '', ''
  for each in string.gmatch(in_use, '%d') do
    if each > digit then
      higher = higher .. each
    else
      lower = lower .. each
    end
  end
  return higher .. digit .. lower
end
