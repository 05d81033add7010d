-- Counts the bytes of the rows in `why` of dead and of done messages: errors, timelines and results.
--
-- An earlier version, which does not count them, may use the queue at the same time. So `dead_why` and `done_why` in
-- `meta` have the bytes and a state, three numbers: the messages in the place, a counter that grows if one of them is
-- replaced by another, and `repairs`. Every addition and removal changes the state. If it is not the present one, the
-- rows are counted again; the bytes of too many rows are unknown.

local function row_state(keys, place)
  local grows = place == 'dead' and 'buried' or 'done_trimmed'
  local numbers = redis.call('HMGET', keys.meta, grows, 'repairs')
  return redis.call('ZCARD', keys[place]) .. ' ' .. (numbers[1] or 0) .. ' ' .. (numbers[2] or 0)
end

-- Adds to the bytes, and returns them; nil: unknown. `keys.row_bytes` has them until they are stored. It is called
-- before a message is added to `place` or removed from it. After the last one, the caller calls store_row_bytes();
-- without it, the bytes are counted again.
local function add_row_bytes(keys, place, change)
  local MOST_COUNTED = 1000

  local function counted()
    local bytes = 0
    for _, id in ipairs(redis.call('ZRANGE', keys[place], 0, -1)) do
      local size = redis.pcall('HSTRLEN', keys.why, id)
      if type(size) == 'table' then
        return 'unknown' -- another program has overwritten `why`
      end
      bytes = bytes + size
    end
    return bytes
  end

  local function known()
    local bytes, state = string.match(redis.call('HGET', keys.meta, place .. '_why') or '', '^(%d+) (.+)$')
    if state == row_state(keys, place) then
      return tonumber(bytes)
    end
    return redis.call('ZCARD', keys[place]) > MOST_COUNTED and 'unknown' or counted()
  end

  keys.row_bytes = keys.row_bytes or {}
  local bytes = keys.row_bytes[place] or known()
  keys.row_bytes[place] = bytes == 'unknown' and bytes or bytes + change
  return bytes ~= 'unknown' and keys.row_bytes[place] or nil
end

local function store_row_bytes(keys)
  if not keys.row_bytes then
    return
  end
  for place, bytes in pairs(keys.row_bytes) do
    if bytes == 0 then
      redis.call('HDEL', keys.meta, place .. '_why')
    elseif bytes ~= 'unknown' then
      redis.call('HSET', keys.meta, place .. '_why', bytes .. ' ' .. row_state(keys, place))
    end
  end
  keys.row_bytes = nil
end
