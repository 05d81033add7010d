-- Part of audit: the fields of `meta`.
-- READS    meta, waiting*
-- CHANGES  meta, wake
-- GIVES    check_all_fields(); check_counters(); check_priorities(); check_hints(record, is_live)

-- @include lib/types.lua

local check_all_fields, check_counters, check_priorities, check_hints
do
  -- @include lib/large.lua
  -- @include lib/entry_ids.lua

  local COUNTERS = {
    'sent',
    'delivered',
    'acked',
    'retried',
    'deferred',
    'released',
    'recycled',
    'crashed',
    'buried',
    'redriven',
    'cancelled',
    'expired',
    'dropped',
    'purged',
    'moved',
    'trimmed',
    'done_trimmed',
    'duplicates',
    'replaced',
    'filtered',
    'published',
    'entered',
    'largest',
    'repairs',
  }
  local SIGNED = { 'corrected', 'bytes', 'dead_bytes', 'done_bytes' } -- another program may make them negative
  local TIMES = { 'clock', 'lateness', 'tat', 'limited', 'slot', 'swept', 'trimmed_at', 'point' }
  local MOST_DIGITS = 18 -- HINCRBY can add to these, and a double holds them nearly

  local function is_integer(text)
    return string.find(text, '^-?%d+$') and #text <= MOST_DIGITS
  end

  -- The start of a range for XPENDING: after an entry.
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

  function check_all_fields()
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

  function check_counters()
    for i, value in ipairs(redis.call('HMGET', keys.meta, unpack(COUNTERS))) do
      if value and tonumber(value) < 0 then
        fault(COUNTERS[i], 'a counter below zero', function()
          redis.call('HDEL', keys.meta, COUNTERS[i])
        end)
      end
    end
  end

  -- `priorities` always names 0: most messages have it, and all entries of a topic.
  function check_priorities()
    local in_use, right, unnamed = redis.call('HGET', keys.meta, 'priorities') or '0', '', {}
    for priority = 9, 0, -1 do
      local is_named = string.find(in_use, tostring(priority), 1, true)
      local is_used = priority == 0 or redis.call('EXISTS', keys.waiting[priority]) == 1
      right = right .. ((is_named or is_used) and tostring(priority) or '')
      if is_used and not is_named then
        unnamed[#unnamed + 1] = 'waiting' .. priority
      end
    end
    local function set_priorities()
      redis.call('HSET', keys.meta, 'priorities', right)
      leave_wake_token(keys.wake)
    end
    for _, name in ipairs(unnamed) do
      fault(name, 'a priority that no claim looks at', set_priorities)
    end
    if #unnamed == 0 and in_use ~= right then
      fault('priorities', 'priorities out of order', set_priorities)
    end
  end

  -- Checks the fields that claims need for this message. Its priority matters even if it has ended: a redrive uses it.
  function check_hints(record, is_live)
    if flaw_of(record) then
      return
    end
    local in_use, large, keyed = unpack(redis.call('HMGET', keys.meta, 'priorities', 'large', 'keyed'))
    local priority = store.waits_under(record)
    in_use = in_use or '0'
    if not string.find(in_use, tostring(priority), 1, true) then
      fault('waiting' .. priority, 'a priority that no claim looks at', function()
        redis.call('HSET', keys.meta, 'priorities', with_priority(in_use, priority))
        leave_wake_token(keys.wake)
      end)
    end
    if is_live and #record > LARGE and not large then
      fault('large', 'a field of meta that is missing', function()
        redis.call('HSET', keys.meta, 'large', 1)
      end)
    end
    if is_live and has(flags_of(record), FLAG_KEY) and not keyed then
      fault('keyed', 'a field of meta that is missing', function()
        redis.call('HSET', keys.meta, 'keyed', 1)
      end)
    end
  end
end
