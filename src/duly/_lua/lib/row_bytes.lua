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

-- Adds to the bytes, and returns them; nil: unknown. `keys.counted` has them until they are stored. It is called
-- before a message is added to `place` or removed from it. After the last one, the caller calls store_row_bytes();
-- without it, the bytes are unknown.
local function add_row_bytes(keys, place, change)
  local function stored()
    local text = redis.call('HGET', keys.meta, place .. '_why') or ''
    local bytes, state = string.match(text, '^(%d+) (.+)$')
    local present = row_state(keys, place)
    keys.stored[place] = text
    if string.sub(present, 1, 2) == '0 ' then
      return 0
    end
    return state == present and tonumber(bytes) or 'unknown'
  end

  keys.counted, keys.stored = keys.counted or {}, keys.stored or {}
  local bytes = keys.counted[place] or stored()
  keys.counted[place] = bytes == 'unknown' and bytes or bytes + change
  return bytes ~= 'unknown' and keys.counted[place] or nil
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
  keys.counted[place] = bytes
  return bytes
end

-- Writes nothing that is stored already: most calls of `tidy` change nothing, and each write is replicated.
local function store_row_bytes(keys)
  if not keys.counted then
    return
  end
  for place, bytes in pairs(keys.counted) do
    local state = row_state(keys, place)
    local text = bytes .. ' ' .. state
    if bytes == 0 or string.sub(state, 1, 2) == '0 ' then
      redis.call('HDEL', keys.meta, place .. '_why')
    elseif bytes ~= 'unknown' and text ~= keys.stored[place] then
      redis.call('HSET', keys.meta, place .. '_why', text)
    end
  end
  keys.counted, keys.stored = nil, nil
end
