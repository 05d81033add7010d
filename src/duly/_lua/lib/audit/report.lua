-- Part of audit: what a step reports.
-- READS    repair
-- CHANGES  meta: `repairs`
-- GIVES    fault, which takes an id, what is wrong with it, and a function for repairs; count_id();
--          count_bytes(place, size); continue_at(cursor), where the next step begins; report(), the reply

local fault, count_id, count_bytes, continue_at, report
do
  local reply = { '0', 0, 0, 0, 0 }
  local BYTES_AT = { dead = 4, done = 5 }
  local LIVE_BYTES_AT = 3

  function fault(id, what, fix)
    reply[#reply + 1] = id
    reply[#reply + 1] = what
    if repair then
      fix()
      redis.pcall('HINCRBY', keys.meta, 'repairs', 1) -- refused where `meta` is overwritten, and it is mended, too
    end
  end

  function count_id()
    reply[2] = reply[2] + 1
  end

  -- Of a record that is stored, by the place of its message.
  function count_bytes(place, size)
    local at = BYTES_AT[place] or LIVE_BYTES_AT
    reply[at] = reply[at] + size
  end

  function continue_at(following)
    reply[1] = following
  end

  function report()
    return reply
  end
end
