-- Counting entries. To count them, a script reads them with their bodies, so the number is bounded.

-- @include lib/entry_ids.lua

local function ms_of(id)
  return tonumber(string.match(id, '^%d+'))
end

-- Returns how many entries may be counted at once, by the size of the topic's largest entry.
local function most_counted(meta)
  local largest = tonumber(redis.call('HGET', meta, 'largest') or 0)
  return math.min(math.max(math.floor(4194304 / math.max(largest, 1)), 1), 1000)
end

-- Redis before 7.4 and Valkey before 8.0 do not write to files and replicas how much a group has read. After a restart
-- or a fail-over they report a lag that does not go away.
local IS_LAG_KEPT = (redis.REDIS_VERSION_NUM or 0) >= 0x070400 or (redis.VALKEY_VERSION_NUM or 0) >= 0x080000

-- Returns the lag of a group as the server reports it; nil: it reports none, or is not reliable. Some servers also
-- count entries that were trimmed before the group read them.
local function lag_of(group, meta)
  return IS_LAG_KEPT and group.lag and redis.call('HEXISTS', meta, 'missed:' .. group.name) == 0 and group.lag or nil
end

local function count_of(stream, from, to, most)
  return #redis.call('XRANGE', stream, from, to, 'COUNT', most)
end
