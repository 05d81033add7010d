-- Counts the bytes of the rows in `why` of dead and of done messages: errors, timelines and results.
--
-- An earlier version, which does not count them, may use the queue at the same time. So `dead_why` and `done_why` in
-- `meta` have the bytes and a state, three numbers: the messages in the place, a counter that grows if one of them is
-- replaced by another, and `repairs`. Every addition and removal changes the state. If it is not the present one, the
-- bytes are unknown until the rows are counted again.

local function row_state(keys, place)
  local grows = place == 'dead' and 'buried' or 'done_trimmed'
  local numbers = redis.call('HMGET', keys.meta, grows, 'repairs')
  return redis.call('ZCARD', keys[place]) .. ' ' .. (numbers[1] or 0) .. ' ' .. (numbers[2] or 0)
end

-- Adds to the bytes, and returns them; nil: unknown. `keys.row_bytes` has them until they are stored. It is called
-- before a message is added to `place` or removed from it. After the last one, the caller calls store_row_bytes();
-- without it, the bytes are unknown.
local function add_row_bytes(keys, place, change)
  local function stored()
    local bytes, state = string.match(redis.call('HGET', keys.meta, place .. '_why') or '', '^(%d+) (.+)$')
    local present = row_state(keys, place)
    if state == present then
      return tonumber(bytes)
    end
    return string.sub(present, 1, 2) == '0 ' and 0 or 'unknown'
  end

  keys.row_bytes = keys.row_bytes or {}
  local bytes = keys.row_bytes[place] or stored()
  keys.row_bytes[place] = bytes == 'unknown' and bytes or bytes + change
  return bytes ~= 'unknown' and keys.row_bytes[place] or nil
end

-- Returns the bytes, and counts the rows again if they are unknown; nil: they are too many, without the `added` ones.
-- Scripts that run for each message do this only for a budget: while two versions use the queue, it would slow down
-- every call.
local function row_bytes(keys, place, added)
  local MOST_COUNTED = 1000
  local bytes = add_row_bytes(keys, place, 0)
  if bytes or redis.call('ZCARD', keys[place]) > MOST_COUNTED + added then
    return bytes
  end
  bytes = 0
  for _, id in ipairs(redis.call('ZRANGE', keys[place], 0, -1)) do
    local size = redis.pcall('HSTRLEN', keys.why, id)
    if type(size) == 'table' then
      return nil -- another program has overwritten `why`
    end
    bytes = bytes + size
  end
  keys.row_bytes[place] = bytes
  return bytes
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
