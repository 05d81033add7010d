-- Ends of messages that callers wait for. `awaited` has the ids, and each end is announced once in `ends`, which all
-- waiting callers read. Both keys expire. Waiting callers also poll, so they work without either key.

local ENDS_KEPT, ENDS_KEPT_MS = 1000, 60000

-- Announces the ends of those messages that are awaited.
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

-- Returns the last entry of `ends`: later announcements come after it.
local function last_end(ends)
  local last = redis.call('XREVRANGE', ends, '+', '-', 'COUNT', 1)
  return last[1] and last[1][1] or '0-0'
end
