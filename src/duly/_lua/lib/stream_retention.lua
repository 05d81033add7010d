-- Keeps a stream within its bounds by trimming its oldest entries. Entries that a group has not read by then are
-- counted as missed. Those that it has read are in its own store.

-- @include lib/entry_counts.lua
-- @include lib/stream_groups.lua

local LOOKS_BY_AGE_US = 1000000 -- how often entries are trimmed by their age
local ROUNDS_BY_SIZE = 5

-- `keep` has count, age (microseconds) and bytes, -1 for no bound.
local function is_unbounded(keep)
  return keep.count < 0 and keep.age < 0 and keep.bytes < 0
end

local function trim_by_size(stream, most)
  for _ = 1, ROUNDS_BY_SIZE do
    local used, length = redis.call('MEMORY', 'USAGE', stream) or 0, redis.call('XLEN', stream)
    if used <= most or length == 0 then
      return
    end
    -- In proportion, and at least one entry, because the server only estimates.
    redis.call('XTRIM', stream, 'MAXLEN', '=', math.min(math.floor(length * most / used), length - 1))
  end
end

-- Returns the first millisecond whose entries are kept.
local function oldest_ms(keep, server_us)
  return math.max(math.floor((server_us - keep.age) / 1000), 0)
end

local function trim_stream(stream, keep, server_us, is_by_age)
  if keep.count >= 0 then
    redis.call('XTRIM', stream, 'MAXLEN', '=', keep.count)
  end
  if is_by_age then
    redis.call('XTRIM', stream, 'MINID', '=', string.format('%.0f', oldest_ms(keep, server_us)))
  end
  if keep.bytes >= 0 then
    trim_by_size(stream, keep.bytes)
  end
end

-- If the server does not report the lag of groups, counts how many of the `most` oldest entries each group has read.
local function count_read(topic, stream, groups, most)
  local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1][1]
  most = math.min(most, most_counted(topic.meta))
  for _, group in ipairs(groups) do
    group.lag = lag_of(group, topic.meta)
    if not group.lag then
      local is_behind = most > 0 and is_before(group.last, last)
      group.read = is_behind and count_of(stream, '-', group.last, most) or math.huge
    end
  end
end

-- Returns how many of `length` entries may be trimmed.
local function most_to_go(stream, keep, server_us, is_by_age, length)
  local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1][1]
  if keep.bytes >= 0 or (is_by_age and ms_of(first) < oldest_ms(keep, server_us)) then
    return length
  end
  return keep.count >= 0 and math.max(length - keep.count, 0) or 0
end

-- Counts the entries that groups miss. `groups` is their state before `removed` entries were trimmed.
local function count_missed(topic, stream, groups, removed)
  local length = redis.call('XLEN', stream)
  local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
  for _, group in ipairs(groups) do
    -- A lag may include entries that were trimmed earlier, and were counted then.
    local missed = group.lag and math.min(group.lag, removed + length) - length or removed - (group.read or 0)
    if first and not is_before(group.last, first[1]) then
      missed = 0 -- it has read all trimmed entries
    end
    if missed > 0 then
      redis.call('HINCRBY', topic.meta, 'missed:' .. group.name, missed)
    end
  end
end

-- Returns how many entries were trimmed. Only publishes and tidying call this. Age is checked once per second.
local function retain(topic, stream, keep, server_us)
  if is_unbounded(keep) then
    return 0
  end
  local since = server_us - (redis.call('HGET', topic.meta, 'trimmed_at') or 0)
  local is_by_age = keep.age >= 0 and (since >= LOOKS_BY_AGE_US or since < 0) -- negative: a clock was set back
  local before = redis.call('XLEN', stream)
  if before == 0 or not (is_by_age or keep.bytes >= 0 or (keep.count >= 0 and before > keep.count)) then
    return 0
  end
  local groups = groups_of(stream)
  count_read(topic, stream, groups, most_to_go(stream, keep, server_us, is_by_age, before))
  trim_stream(stream, keep, server_us, is_by_age)
  if is_by_age then
    redis.call('HSET', topic.meta, 'trimmed_at', server_us)
  end
  local removed = before - redis.call('XLEN', stream)
  if removed > 0 then
    redis.call('HINCRBY', topic.meta, 'trimmed', removed)
    count_missed(topic, stream, groups, removed)
  end
  return removed
end
