-- Part of claim, for groups: what consumers of other programs hold and are silent about.

-- A consumer that has nothing pending leaves no trace; should it live, its next read makes it known again.
local function forget_consumer(name)
  if #redis.call('XPENDING', STREAM, GROUP, '-', '+', 1, name) == 0 then
    redis.call('XGROUP', 'DELCONSUMER', STREAM, GROUP, name)
  end
end

-- An entry that a consumer without leases holds, one of another program, and is silent about: it is ours now.
local function take_over(id, holder, overdue, deliveries)
  local entry = redis.call('XRANGE', STREAM, id, id)[1]
  ack_entries(GROUP, { id })
  forget_consumer(holder)
  if not entry then
    return -- it was trimmed: nobody can have it
  end
  -- It is due since it was published, so that it comes before what was published later.
  local ms, number = string.match(id, '^(%d+)-(%d+)$')
  local due = tonumber(ms) * 1000 + math.min(tonumber(number), 999)
  local record, key = record_of(id, entry[2], due)
  local counts, past = { 0, deliveries, 0, 0, 0, 0, 0 }, { errors = {}, timeline = {} }
  local is_dead = deliveries >= crash_limit
  redis.call('HSET', MSGS, id, record)
  redis.call('HINCRBY', META, 'sent', 1)
  redis.call('HINCRBY', META, 'crashed', deliveries)
  redis.call('HINCRBY', META, 'bytes', #record)
  if is_dead then
    bury(keys, id, record, #record, 'poison', counts, past, now, key)
    buried = buried + 1
  else
    redis.call('ZADD', keys.waiting[0], due, id)
    keep_counts(COUNTS, id, counts)
  end
  if key then
    redis.call('HSET', META, 'keyed', 1)
    is_keyed = true
  end
  for _, each in ipairs({ id, holder, overdue, is_dead and 1 or 0 }) do
    reclaimed[#reclaimed + 1] = each
  end
end

-- Looks through the pending list for what others hold.
local function take_over_silent()
  local from = '-'
  repeat
    local lease_ms = math.ceil(lease_us / 1000)
    local rows = redis.pcall('XPENDING', STREAM, GROUP, 'IDLE', lease_ms, from, '+', TAKEN_OVER_A_CALL)
    if rows.err then
      return -- no group yet
    end
    for _, row in ipairs(rows) do
      local id, holder, idle, deliveries = unpack(row)
      if redis.call('HEXISTS', LEASES, id) == 0 and redis.call('HEXISTS', MSGS, id) == 0 then
        take_over(id, holder, idle * 1000 - lease_us, deliveries)
      end
      from = '(' .. id
    end
  until #rows < TAKEN_OVER_A_CALL
end
