-- The messages that are due and wait: ready ones, parked ones, and the unread entries of a group.

-- @include lib/due_count.lua
-- @only group
-- @include lib/stream_groups.lua
-- @include lib/unread_entries.lua
-- @include lib/group.lua
-- @end

-- Returns their number, and for how long the oldest that is not parked has been due; -1: there is none. A key that
-- another program has overwritten counts as empty.
local function backlog(keys, now)
  local parked = redis.pcall('ZCARD', keys.parked)
  local depth, oldest = type(parked) == 'number' and parked or 0, math.huge
  for _, waiting in pairs(keys.waiting) do
    local due, first = count_due(waiting, now)
    depth, oldest = depth + due, math.min(oldest, first or math.huge)
  end
  -- @only group
  local is_own = string.find(keys.parked, '{@', 1, true) -- not a queue that a commit of the group sends to
  local group = is_own and find_group(STREAM, group_of(keys.parked))
  local unread = group and unread_of(STREAM, group, TOPIC_META) or 0
  local first = unread > 0 and redis.call('XRANGE', STREAM, '(' .. group.last, '+', 'COUNT', 1)[1]
  if first then
    oldest = math.min(oldest, ms_of(first[1]) * 1000)
  end
  depth = depth + unread
  -- @end
  return depth, oldest < math.huge and math.max(now - oldest, 0) or -1
end
