-- Part of audit: the report of a step.
-- READS    repair
-- CHANGES  meta: `repairs`
-- GIVES    fault, which takes an id, the text of a fault, and a function that repairs it; count_id();
--          count_bytes(place, size); count_row(place, size); continue_at(cursor) for the next step; report(), the reply

local fault, count_id, count_bytes, count_row, continue_at, report
do
  local reply = { '0', 0, 0, 0, 0, 0, 0 }
  local BYTES_AT, ROWS_AT = { dead = 4, done = 5 }, { dead = 6, done = 7 }
  local LIVE_BYTES_AT = 3

  function fault(id, what, fix)
    reply[#reply + 1] = id
    reply[#reply + 1] = what
    if repair then
      fix()
      redis.pcall('HINCRBY', keys.meta, 'repairs', 1) -- fails if `meta` has another type, which is also a fault
    end
  end

  function count_id()
    reply[2] = reply[2] + 1
  end

  -- Counts a stored record. Messages are live unless their place is `dead` or `done`.
  function count_bytes(place, size)
    local at = BYTES_AT[place] or LIVE_BYTES_AT
    reply[at] = reply[at] + size
  end

  -- Counts a row of `why` of a message whose place is `dead` or `done`.
  function count_row(place, size)
    reply[ROWS_AT[place]] = reply[ROWS_AT[place]] + size
  end

  function continue_at(following)
    reply[1] = following
  end

  function report()
    return reply
  end
end
