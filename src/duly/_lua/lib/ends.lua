-- Ends that somebody waits for. Who does is in `awaited`; an end is told once in `ends`, which all who wait can read.
-- Both keys expire: whoever waits asks again from time to time, and so needs neither of them to be there.

local ENDS_KEPT, ENDS_KEPT_MS = 1000, 60000

-- Tells the ends of messages, those that are awaited.
local function announce_ends(keys, ids)
  if redis.call('EXISTS', keys.awaited) == 0 then
    return
  end
  local awaited = redis.call('ZMSCORE', keys.awaited, unpack(ids))
  for i, id in ipairs(ids) do
    if awaited[i] then
      redis.call('ZREM', keys.awaited, id)
      redis.call('XADD', keys.ends, 'MAXLEN', '~', ENDS_KEPT, '*', 'id', id)
      redis.call('PEXPIRE', keys.ends, ENDS_KEPT_MS)
    end
  end
end

-- The last entry of `ends`: what is told from now on comes behind it.
local function last_end(ends)
  local last = redis.call('XREVRANGE', ends, '+', '-', 'COUNT', 1)
  return last[1] and last[1][1] or '0-0'
end
