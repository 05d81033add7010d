-- Keeps `dead` and `done` within their bounds: removes and counts the oldest messages, a bounded number per call.

-- @include lib/bounds.lua
-- @include lib/record.lua
-- @include lib/lanes.lua
-- @include lib/row_bytes.lua
-- @include lib/wake.lua

local EXTRA_TRIMMED = 100 -- in addition to the number added, so that a lowered bound is reached

-- Called after `added` messages were added to a place: `name` is `dead` or `done`. `keep` has the bounds of
-- lib/bounds.lua. Its bytes are those of records and rows; rows of unknown bytes do not count. If a trimmed dead letter
-- blocked its lane, the lane goes on.
local function trim(keys, name, keep, now, added)
  local place, size_field, counter = keys[name], name .. '_bytes', name == 'dead' and 'trimmed' or 'done_trimmed'
  local excess, held = 0, nil
  if keep.count >= 0 then
    excess = redis.call('ZCARD', place) - keep.count
  end
  if keep.bytes >= 0 then
    held = tonumber(redis.call('HGET', keys.meta, size_field) or 0) + (row_bytes(keys, name, added) or 0)
  end
  local oldest = redis.call('ZRANGE', place, 0, added + EXTRA_TRIMMED - 1, 'WITHSCORES')
  local trimmed, freed = 0, 0
  local may_block = name == 'dead' and redis.call('EXISTS', keys.lanes) == 1
  for i = 1, #oldest, 2 do
    local id = oldest[i]
    local is_old = keep.age >= 0 and tonumber(oldest[i + 1]) <= now - keep.age
    local is_heavy = held and held > keep.bytes
    if not (trimmed < excess or is_old or is_heavy) then
      break
    end
    local size, row = redis.call('HSTRLEN', keys.msgs, id), redis.call('HSTRLEN', keys.why, id)
    local is_counted = add_row_bytes(keys, name, 0 - row)
    freed, held = freed + size, held and held - size - (is_counted and row or 0)
    if may_block and leave_lane(keys, id, redis.call('HGET', keys.msgs, id), now) then
      leave_wake_token(keys.wake)
    end
    redis.call('ZREM', place, id)
    redis.call('HDEL', keys.msgs, id)
    redis.call('HDEL', keys.why, id)
    trimmed = trimmed + 1
  end
  if trimmed > 0 then
    redis.call('HINCRBY', keys.meta, counter, trimmed)
    redis.call('HINCRBY', keys.meta, size_field, 0 - freed)
  end
  store_row_bytes(keys)
  return trimmed
end
