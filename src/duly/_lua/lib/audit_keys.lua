-- Part of audit: what is wrong with a key as a whole, or with a field of `meta`.

-- @include lib/types.lua
-- @include lib/large.lua
-- @include lib/schedule.lua

local COUNTERS = {
  'sent', 'delivered', 'acked', 'retried', 'deferred', 'released', 'recycled', 'crashed', 'buried', 'redriven',
  'cancelled', 'expired', 'dropped', 'purged', 'moved', 'trimmed', 'done_trimmed', 'duplicates', 'replaced', 'filtered',
}
local SIGNED = { 'corrected', 'bytes', 'dead_bytes', 'done_bytes' } -- others may make them so
local TIMES = { 'clock', 'lateness', 'tat', 'limited', 'slot', 'swept' }
local MOST_DIGITS = 18 -- what the server can add to, and a double holds nearly

local function is_integer(text)
  return string.find(text, '^-?%d+$') and #text <= MOST_DIGITS
end

local function is_time(text)
  local value = tonumber(text)
  return value and value >= 0 and value < NO_TIME
end

local function is_entry_id(text)
  return string.find(text, '^%d+%-%d+$')
end

-- Behind an entry, as XPENDING has it.
local function is_position(text)
  return string.find(text, '^%(%d+%-%d+$')
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

-- What would stop the scripts, this one too: it is looked for first, and the rest when nothing of it is left.
local function check_readable()
  for name, wanted in pairs(TYPES) do
    local is_bell = name == 'wake' and string.find(keys.wake, '{@', 1, true)
    check_type(keys[name], is_bell and 'stream' or wanted)
  end
  for _, key in pairs(keys.waiting) do
    check_type(key, 'zset')
  end
  check_type(keys.schedules, 'hash')
  check_type(keys.slots, 'zset')
  if is_type(keys.meta, 'hash') then
    check_fields(COUNTERS, is_integer)
    check_fields(SIGNED, is_integer)
    check_fields(TIMES, is_time)
    check_fields({ 'fed' }, is_entry_id)
    check_fields({ 'sweeping' }, is_position)
  end
end

local function check_counters()
  for i, value in ipairs(redis.call('HMGET', keys.meta, unpack(COUNTERS))) do
    if value and tonumber(value) < 0 then
      fault(COUNTERS[i], 'a counter below zero', function()
        redis.call('HDEL', keys.meta, COUNTERS[i])
      end)
    end
  end
end

-- 0 is always named: it is what most messages have, and the entries of a topic.
local function check_priorities()
  local in_use, right, hidden = redis.call('HGET', keys.meta, 'priorities') or '0', '', {}
  for priority = 9, 0, -1 do
    local is_named = string.find(in_use, tostring(priority), 1, true)
    local is_used = priority == 0 or redis.call('EXISTS', keys.waiting[priority]) == 1
    right = right .. ((is_named or is_used) and tostring(priority) or '')
    if is_used and not is_named then
      hidden[#hidden + 1] = 'waiting' .. priority
    end
  end
  local function name_all()
    redis.call('HSET', keys.meta, 'priorities', right)
    leave_token(keys.wake)
  end
  for _, name in ipairs(hidden) do
    fault(name, 'a priority that no claim looks at', name_all)
  end
  if #hidden == 0 and in_use ~= right then
    fault('priorities', 'priorities out of order', name_all)
  end
end

-- What `meta` must say of a message that has a body: of its priority also when it is over, for it may come back.
local function check_hints(record, is_live)
  if flaw_of(record) then
    return
  end
  local in_use, large, keyed = unpack(redis.call('HMGET', keys.meta, 'priorities', 'large', 'keyed'))
  local priority = priority_of(record)
  in_use = in_use or '0'
  if not string.find(in_use, tostring(priority), 1, true) then
    fault('waiting' .. priority, 'a priority that no claim looks at', function()
      redis.call('HSET', keys.meta, 'priorities', with_priority(in_use, priority))
      leave_token(keys.wake)
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

-- Counting and freeing take it for granted that there is a pillar when there is anything, and then only.
local function check_pillars()
  local leased, in_lanes = redis.call('ZCARD', keys.leased), redis.call('HLEN', keys.lanes)
  local score = redis.call('ZSCORE', keys.leased, PILLAR)
  if leased > 0 and (not score or tonumber(score) < math.huge) then
    fault('leased', 'without its pillar', function()
      redis.call('ZADD', keys.leased, '+inf', PILLAR)
    end)
  elseif leased == 1 then
    fault('leased', 'a pillar and nothing else', function()
      redis.call('DEL', keys.leased)
    end)
  end
  local has_pillar = redis.call('HEXISTS', keys.lanes, LANES_PILLAR_FIELD) == 1
  if in_lanes > 0 and not has_pillar then
    fault('lanes', 'without its pillar', function()
      redis.call('HSET', keys.lanes, LANES_PILLAR_FIELD, LANES_PILLAR)
    end)
  elseif in_lanes == 1 then
    fault('lanes', 'a pillar and nothing else', function()
      redis.call('DEL', keys.lanes)
    end)
  end
end

local function check_next_slot()
  local first, noted = redis.call('ZRANGE', keys.slots, 0, 0, 'WITHSCORES'), redis.call('HGET', keys.meta, 'slot')
  if tonumber(first[2]) ~= tonumber(noted or nil) then
    fault('slot', 'the next slot is noted wrong', function()
      look_at(keys.slots, keys.meta, '', false)
      leave_token(keys.wake)
    end)
  end
end

-- A row that cannot be read is left for another version.
local function check_schedule(name, row)
  local _, _, _, paused = read_head(row)
  local is_looked_at = redis.call('ZSCORE', keys.slots, name)
  if paused == 0 and not is_looked_at then
    fault(name, 'a schedule that nobody looks at', function()
      look_at(keys.slots, keys.meta, name, now)
      leave_token(keys.wake)
    end)
  elseif paused == 1 and is_looked_at then
    fault(name, 'a paused schedule that is looked at', function()
      look_at(keys.slots, keys.meta, name, false)
    end)
  end
end

local function check_slot(name)
  if redis.call('HEXISTS', keys.schedules, name) == 0 then
    fault(name, 'a slot of no schedule', function()
      look_at(keys.slots, keys.meta, name, false)
    end)
  end
end
