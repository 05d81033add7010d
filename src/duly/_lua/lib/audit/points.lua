-- Part of audit: the history.
-- READS    history
-- CHANGES  history: removes what no point and no sum is
-- GIVES    check_points()

local check_points
do
  local SIZES = { m = 60, t = 144, h = 168 } -- as in lib/points.lua
  local NUMBERS, SUM = 10, '^%d+[,%d]*$'

  local function is_point(text)
    local numbers, sums = 0, 0
    for word in string.gmatch(text, '%S+') do
      if numbers < NUMBERS and string.find(word, '^-?%d+$') then
        numbers = numbers + 1
      elseif numbers == NUMBERS and string.find(word, SUM) then
        sums = sums + 1
      else
        return false
      end
    end
    return numbers == NUMBERS and sums == 2
  end

  local function is_sound(field, value)
    if field == 'lateness' or field == 'handling' then
      return string.find(value, SUM)
    end
    local ring, at = string.match(field, '^(%a)(%d+)$')
    return ring and SIZES[ring] and tonumber(at) < SIZES[ring] and is_point(value)
  end

  -- The rings are small, so one call reads them. A larger key was written by another program, and is removed.
  function check_points()
    local most = SIZES.m + SIZES.t + SIZES.h + 2
    if redis.call('HLEN', keys.history) > 2 * most then
      return fault('history', 'a history that cannot be read', function()
        redis.call('DEL', keys.history)
      end)
    end
    local fields = redis.call('HGETALL', keys.history)
    for i = 1, #fields, 2 do
      if not is_sound(fields[i], fields[i + 1]) then
        fault('history', 'a history that cannot be read', function()
          redis.call('HDEL', keys.history, fields[i])
        end)
      end
    end
  end
end
