-- Part of audit: whether keys and the fields of `meta` can be read at all.

-- @include lib/types.lua
-- @include lib/entry_ids.lua

local SIGNED = { 'corrected', 'bytes', 'dead_bytes', 'done_bytes' } -- others may make them so
local TIMES = { 'clock', 'lateness', 'tat', 'limited', 'slot', 'swept', 'trimmed_at' }
local MOST_DIGITS = 18 -- what the server can add to, and a double holds nearly

local function is_integer(text)
  return string.find(text, '^-?%d+$') and #text <= MOST_DIGITS
end

-- Behind an entry, as XPENDING has it.
local function is_position(text)
  return string.sub(text, 1, 1) == '(' and is_entry_id(string.sub(text, 2))
end

local function check_fields(names, is_sound)
  for i, value in ipairs(redis.call('HMGET', keys.meta, unpack(names))) do
    if value and not is_sound(value) then
      fault(names[i], 'a field of meta that cannot be read', function()
        redis.call('HDEL', keys.meta, names[i])
      end)
    end
  end
end

local function check_type(key, wanted)
  if not is_type(key, wanted) then
    fault(string.match(key, '[^:]*$'), 'a key of another type', function()
      redis.call('DEL', key)
    end)
  end
end

-- @only topic
local function check_missed()
  local names, fields = {}, redis.call('HGETALL', keys.meta)
  for at = 1, #fields, 2 do
    if string.find(fields[at], '^missed:') then
      names[#names + 1] = fields[at]
    end
  end
  if #names > 0 then
    check_fields(names, is_integer)
  end
end
-- @end

local function check_types()
  for name, wanted in pairs(TYPES) do
    local is_bell = name == 'wake' and string.find(keys.wake, '{@', 1, true)
    check_type(keys[name], is_bell and 'stream' or wanted)
  end
  for _, key in pairs(keys.waiting) do
    check_type(key, 'zset')
  end
  check_type(keys.schedules, 'hash')
  check_type(keys.slots, 'zset')
  if keys.stream then
    check_type(keys.stream, 'stream')
  end
end

local function check_all_fields()
  if not is_type(keys.meta, 'hash') then
    return
  end
  check_fields(COUNTERS, is_integer)
  check_fields(SIGNED, is_integer)
  check_fields(TIMES, is_time)
  check_fields({ 'fed' }, is_entry_id)
  check_fields({ 'sweeping' }, is_position)
  -- @only topic
  check_missed()
  -- @end
end
