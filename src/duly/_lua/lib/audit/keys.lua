-- Part of audit: types, times to live and encoding guards of keys.
-- READS    every key: its type and time to live; leased, lanes, dedup_ends; now
-- CHANGES  every key: removes one of another type, sets its time to live; leased, lanes: their guards
-- GIVES    check_types(); check_times_to_live(); check_encoding_guards()

-- @include lib/types.lua

local check_types, check_times_to_live, check_encoding_guards
do
  local function check_type(key, wanted)
    if not is_type(key, wanted) then
      fault(string.match(key, '[^:]*$'), 'a key of another type', function()
        redis.call('DEL', key)
      end)
    end
  end

  function check_types()
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

  local PERMANENT = {
    'msgs',
    'leased',
    'leases',
    'counts',
    'why',
    'expires',
    'dead',
    'done',
    'lanes',
    'parked',
    'schedules',
    'slots',
    'wake',
    'meta',
    'stream',
  }
  local ENDS_KEPT_MS = 60000 -- as in lib/ends.lua
  local HISTORY_KEPT_MS = 691200000 -- as in lib/points.lua

  local function check_permanent(key)
    if redis.call('PTTL', key) >= 0 then
      fault(string.match(key, '[^:]*$'), 'a key that would expire', function()
        redis.call('PERSIST', key)
      end)
    end
  end

  local function check_expiring(key, kept_ms)
    if redis.call('PTTL', key) == -1 then
      fault(string.match(key, '[^:]*$'), 'a key that would never expire', function()
        redis.call('PEXPIRE', key, kept_ms)
      end)
    end
  end

  -- How long the keys of dedup windows are needed: until the last window ends.
  local function windows_needed_ms()
    local ending = redis.call('ZCOUNT', keys.dedup_ends, '-inf', string.format('%.0f', now + LONGEST_US))
    local last = ending > 0 and redis.call('ZRANGE', keys.dedup_ends, ending - 1, ending - 1, 'WITHSCORES')[2]
    return math.ceil(math.max(tonumber(last or 0) - now, 0) / 1000) + 1000
  end

  -- Both keys of dedup windows expire at the same time, unless another program has changed one.
  local function check_windows_share_expiry()
    local first, second = redis.call('PTTL', keys.dedup), redis.call('PTTL', keys.dedup_ends)
    if first < 0 or second < 0 or math.abs(first - second) <= 1000 then
      return
    end
    local key = first < second and keys.dedup or keys.dedup_ends
    fault(string.match(key, '[^:]*$'), 'a key that would expire', function()
      redis.call('PEXPIRE', key, math.max(first, second))
    end)
  end

  function check_times_to_live()
    for _, name in ipairs(PERMANENT) do
      if keys[name] then
        check_permanent(keys[name])
      end
    end
    for _, key in pairs(keys.waiting) do
      check_permanent(key)
    end
    check_expiring(keys.awaited, ENDS_KEPT_MS)
    check_expiring(keys.ends, ENDS_KEPT_MS)
    check_expiring(keys.history, HISTORY_KEPT_MS)
    check_expiring(keys.dedup, windows_needed_ms())
    check_expiring(keys.dedup_ends, windows_needed_ms())
    check_windows_share_expiry()
  end

  -- Scripts that count or free rely on an encoding guard, which the texts of faults call a pillar: there is one exactly
  -- as long as the key has other members.
  function check_encoding_guards()
    local leased, in_lanes = redis.call('ZCARD', keys.leased), redis.call('HLEN', keys.lanes)
    local score = redis.call('ZSCORE', keys.leased, ENCODING_GUARD)
    if leased > 0 and (not score or tonumber(score) < math.huge) then
      fault('leased', 'without its pillar', function()
        redis.call('ZADD', keys.leased, '+inf', ENCODING_GUARD)
      end)
    elseif leased == 1 then
      fault('leased', 'a pillar and nothing else', function()
        redis.call('DEL', keys.leased)
      end)
    end
    local has_guard = redis.call('HEXISTS', keys.lanes, LANES_GUARD_FIELD) == 1
    if in_lanes > 0 and not has_guard then
      fault('lanes', 'without its pillar', function()
        redis.call('HSET', keys.lanes, LANES_GUARD_FIELD, LANES_GUARD)
      end)
    elseif in_lanes == 1 then
      fault('lanes', 'a pillar and nothing else', function()
        redis.call('DEL', keys.lanes)
      end)
    end
  end
end
