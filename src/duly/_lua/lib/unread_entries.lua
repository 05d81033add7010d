-- The number of entries that a group has not read. If the server does not report it, a bounded number of entries is
-- counted from either end of the stream. If that is not enough, the number is estimated by time.

-- @include lib/entry_counts.lua

local function unread_of(stream, group, meta)
  local length = redis.call('XLEN', stream)
  if length == 0 then
    return 0
  end
  local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1][1]
  local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1][1]
  if is_before(group.last, first) then
    return length
  elseif not is_before(group.last, last) then
    return 0 -- regardless of the lag, which may have been loaded from a file of an older server
  end
  local lag = lag_of(group, meta)
  if lag then
    return math.min(lag, length)
  end
  local most = most_counted(meta)
  local behind = count_of(stream, '(' .. group.last, '+', most)
  if behind < most then
    return behind
  end
  local before = count_of(stream, '-', group.last, most)
  if before < most then
    return length - before
  end
  local share = (ms_of(last) - ms_of(group.last)) / math.max(ms_of(last) - ms_of(first), 1)
  return math.max(math.min(math.floor(length * share), length - most), most)
end
