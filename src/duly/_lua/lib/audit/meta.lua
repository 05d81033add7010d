-- Part of audit: what is wrong with `meta` as a whole, and what is seen of a key without going through it.

-- A server whose clock was set back leaves a queue's clock ahead until it is caught up with, and that is no fault. So
-- far ahead, leases and delays would not end for days.
local FAR_AHEAD_US = 86400000000 -- a day

-- Whether something that is stored has a time from the clock, or may have been handed out by it: then the next fence
-- must be larger, and the clock stays. Far ahead it stands nearly still: all that it gave is within a day of it.
local function is_clock_in_use(clock)
  if redis.call('EXISTS', keys.leases, keys.counts, keys.parked) > 0 then
    return true
  end
  local timed = { keys.dead, keys.done, keys.dedup_ends, keys.slots }
  for _, key in pairs(keys.waiting) do
    timed[#timed + 1] = key
  end
  for _, key in ipairs(timed) do
    if redis.call('ZCOUNT', key, clock, '+inf') > 0 then
      return true
    end
  end
  return false
end

-- Nobody is kept back by a rate any more until a claim says so.
local function forget_limit()
  if redis.call('HDEL', keys.meta, 'limited') == 1 then
    leave_token(keys.wake)
  end
end

-- The rate goes on as the clock does: what is left of its interval is left of it then.
local function put_back_rate(first, ahead)
  local tat = tonumber(redis.call('HGET', keys.meta, 'tat') or 0)
  if tat >= first then
    redis.call('HSET', keys.meta, 'tat', string.format('%.0f', math.max(tat - ahead, 0)))
  end
  forget_limit()
end

local function check_clock()
  local clock = redis.call('HGET', keys.meta, 'clock')
  local _, ahead = tick(clock)
  if ahead > FAR_AHEAD_US then
    fault('clock', 'a clock that is far ahead', function()
      local first = tonumber(clock) - FAR_AHEAD_US
      if not is_clock_in_use(string.format('%.0f', first)) then
        redis.call('HDEL', keys.meta, 'clock', 'swept', 'trimmed_at')
        put_back_rate(first, ahead)
        now = tick(false)
      end
    end)
  end
end

-- No rate is slower than one in ten years. A nearer time is brought back by the next claim, which knows its rate.
local function check_rate()
  if tonumber(redis.call('HGET', keys.meta, 'tat') or 0) > now + LONGEST_US then
    fault('tat', 'a rate without an end', function()
      redis.call('HDEL', keys.meta, 'tat')
      forget_limit()
    end)
  end
end

local LASTING = {
  'msgs', 'leased', 'leases', 'counts', 'why', 'expires', 'dead', 'done', 'lanes', 'parked', 'schedules', 'slots',
  'wake', 'meta', 'stream',
}
local ENDS_KEPT_MS = 60000 -- as in lib/ends.lua

local function check_lasting(key)
  if redis.call('PTTL', key) >= 0 then
    fault(string.match(key, '[^:]*$'), 'a key that would expire', function()
      redis.call('PERSIST', key)
    end)
  end
end

local function check_passing(key, kept_ms)
  if redis.call('PTTL', key) == -1 then
    fault(string.match(key, '[^:]*$'), 'a key that would never expire', function()
      redis.call('PEXPIRE', key, kept_ms)
    end)
  end
end

-- How long the windows are needed, by the last of them that has an end.
local function windows_kept_ms()
  local ending = redis.call('ZCOUNT', keys.dedup_ends, '-inf', string.format('%.0f', now + LONGEST_US))
  local last = ending > 0 and redis.call('ZRANGE', keys.dedup_ends, ending - 1, ending - 1, 'WITHSCORES')[2]
  return math.ceil(math.max(tonumber(last or 0) - now, 0) / 1000) + 1000
end

-- Both keys of windows expire at the same time: one that goes before the other was told so by somebody else.
local function check_windows_expire_together()
  local first, second = redis.call('PTTL', keys.dedup), redis.call('PTTL', keys.dedup_ends)
  if first < 0 or second < 0 or math.abs(first - second) <= 1000 then
    return
  end
  local key = first < second and keys.dedup or keys.dedup_ends
  fault(string.match(key, '[^:]*$'), 'a key that would expire', function()
    redis.call('PEXPIRE', key, math.max(first, second))
  end)
end

local function check_times_to_live()
  for _, name in ipairs(LASTING) do
    if keys[name] then
      check_lasting(keys[name])
    end
  end
  for _, key in pairs(keys.waiting) do
    check_lasting(key)
  end
  check_passing(keys.awaited, ENDS_KEPT_MS)
  check_passing(keys.ends, ENDS_KEPT_MS)
  check_passing(keys.dedup, windows_kept_ms())
  check_passing(keys.dedup_ends, windows_kept_ms())
  check_windows_expire_together()
end

-- All that is parked has the same score, or its order is not that of the bytes, and looking for the first of a lane
-- passes some over. So this comes before the lanes.
local function check_parked_scores()
  local from = repair and 0 or tonumber(cursor)
  for _, range in ipairs({ { '-inf', '(0' }, { '(0', '+inf' } }) do
    local wrong = redis.call('ZRANGEBYSCORE', keys.parked, range[1], range[2], 'LIMIT', from, IDS_A_CALL)
    for _, member in ipairs(wrong) do
      local id = string.find(member, '\0', 1, true) and id_of_parked(member) or member
      fault(id, 'parked out of its order', function()
        redis.call('ZADD', keys.parked, 0, member)
      end)
    end
    if #wrong == IDS_A_CALL then
      reply[1] = tostring(from + IDS_A_CALL)
    end
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
