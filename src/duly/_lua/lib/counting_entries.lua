-- Counting entries. The server hands them over for that, bodies and all, so only so many are counted.

-- @include lib/entry_ids.lua

local function ms_of(id)
  return tonumber(string.match(id, '^%d+'))
end

-- How many entries may be counted at once, by the size of the largest that the topic had.
local function most_counted(meta)
  local largest = tonumber(redis.call('HGET', meta, 'largest') or 0)
  return math.min(math.max(math.floor(4194304 / math.max(largest, 1)), 1), 1000)
end

-- How far the server says that a group is behind; nil: it does not say, or cannot be trusted. Redis 7.0 counts entries
-- that were trimmed before the group read them for ever.
local function lag_of(group, meta)
  return group.lag and redis.call('HEXISTS', meta, 'missed:' .. group.name) == 0 and group.lag or nil
end

local function count_of(stream, from, to, most)
  return #redis.call('XRANGE', stream, from, to, 'COUNT', most)
end
