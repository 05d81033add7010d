-- A point of the history, taken by a script that has the key of one priority only, and not that of parked messages.

-- @include lib/points.lua
-- @include lib/due_count.lua

-- `knows_all`: the queue has used no other priority and no keys. Otherwise the backlog is unknown.
local function take_point_of_priority(history, meta, now, ends, waiting, knows_all)
  local depth, oldest_age = -1, -1
  if knows_all then
    local oldest
    depth, oldest = count_due(waiting, now)
    oldest_age = oldest and math.max(now - oldest, 0) or -1
  end
  take_point(history, meta, now, ends, depth, oldest_age)
end
