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

-- Redis before 7.4 and Valkey before 8.0 do not carry what a group has read over to files and replicas: after a restart
-- or a fail-over they report a lag that does not go away.
local IS_LAG_KEPT = (redis.REDIS_VERSION_NUM or 0) >= 0x070400 or (redis.VALKEY_VERSION_NUM or 0) >= 0x080000

-- How far the server says that a group is behind; nil: it does not say, or cannot be trusted. Entries that were trimmed
-- before the group read them stay in the lag of some servers.
local function lag_of(group, meta)
  return IS_LAG_KEPT and group.lag and redis.call('HEXISTS', meta, 'missed:' .. group.name) == 0 and group.lag or nil
end

local function count_of(stream, from, to, most)
  return #redis.call('XRANGE', stream, from, to, 'COUNT', most)
end
