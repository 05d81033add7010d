-- The number of due messages of one priority, by a binary search. ZCOUNT would find it, but producers may not use that
-- command: it would let them list messages.

-- Returns the number, and the due time of the oldest; nil if there is none. A key that another program has overwritten
-- counts as empty.
local function count_due(waiting, now)
  local behind = redis.pcall('ZCARD', waiting)
  if type(behind) ~= 'number' or behind == 0 then
    return 0, nil
  end
  local function due_at_rank(rank)
    return tonumber(redis.call('ZRANGE', waiting, rank, rank, 'WITHSCORES')[2])
  end
  local first, due, middle = due_at_rank(0), 0, behind - 1 -- mostly all are due
  while due < behind do
    if due_at_rank(middle) <= now then
      due = middle + 1
    else
      behind = middle
    end
    middle = math.floor((due + behind) / 2)
  end
  return due, due > 0 and first or nil
end
