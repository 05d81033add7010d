-- Part of claim, for groups: what consumers of other programs hold and are silent about.

local TAKEN_OVER_A_CALL = 100

-- Since when an entry is due: since it was published, so that it comes before what was published later, but after
-- `last_due`, which the one before it has. Anybody may give an entry an id from the future: then it has a tick of its
-- own, as an entry has that is read, and the clock goes on with it.
local function due_since(id, last_due)
  local ms, number = string.match(id, '^(%d+)-(%d+)$')
  local due = math.max(tonumber(ms) * 1000 + tonumber(number), last_due + 1)
  if due <= now then
    return due
  end
  now = now + 1
  return now
end

-- An entry that a consumer without leases holds, one of another program, and is silent about: it is ours now. It takes
-- its place in its lane at once: a claim that passes it over, as a suspect, must not hand out the next one. Returns the
-- due time.
local function take_over(id, holder, overdue, deliveries, last_due)
  local entry = redis.call('XRANGE', STREAM, id, id)[1]
  local is_known = redis.call('HEXISTS', MSGS, id) == 1
  ack_in_stream(GROUP, { id })
  claim.has_acked = true
  forget_consumer(holder)
  if not entry or is_known then
    return last_due -- it was trimmed, and nobody can have it; or it has its place in our store
  end
  local due = due_since(id, last_due)
  local record, key = record_of(id, entry[2], due)
  local counts, past = { 0, deliveries, 0, 0, 0, 0, 0 }, { errors = {}, timeline = {} }
  local is_dead = deliveries >= crash_limit
  redis.call('HSET', MSGS, id, record)
  redis.call('HINCRBY', META, 'sent', 1)
  redis.call('HINCRBY', META, 'crashed', deliveries)
  redis.call('HINCRBY', META, 'bytes', #record)
  if #record > LARGE then
    redis.call('HSET', META, 'large', 1)
  end
  if is_dead then
    bury(keys, id, record, #record, 'poison', counts, past, now, key)
    buried = buried + 1
  else
    redis.call('ZADD', keys.waiting[0], due, id)
    keep_counts(COUNTS, id, counts)
  end
  if key then
    is_keyed = true
    if not is_dead then
      in_its_turn(keys.waiting[0], id, record)
    end
  end
  for _, each in ipairs({ id, as_text(holder), overdue, is_dead and 1 or 0 }) do
    reclaimed[#reclaimed + 1] = each
  end
  return due
end

-- Looks through the pending list for what others hold, a bounded part of it, from where the last look ended. `fed` is
-- the last entry that the group has had, or false. Returns it anew, and whether there may be more.
local function take_over_silent(from, fed)
  local lease_ms, looked_at, taken = math.ceil(lease_us / 1000), 0, 0
  local before = from ~= '-' and redis.call('HGET', MSGS, string.sub(from, 2)) -- where the last look ended
  local last_due = before and not flaw_of(before) and due_of(before) or 0
  local last_fed, is_done = fed
  repeat
    local rows = redis.pcall('XPENDING', STREAM, GROUP, 'IDLE', lease_ms, from, '+', TAKEN_OVER_A_CALL)
    if rows.err then
      return fed, false -- no group yet
    end
    for _, row in ipairs(rows) do
      local id, holder, idle, deliveries = unpack(row)
      if redis.call('HEXISTS', LEASES, id) == 0 then
        last_due, taken = take_over(id, holder, idle * 1000 - lease_us, deliveries, last_due), taken + 1
        last_fed = last_fed and is_before(id, last_fed) and last_fed or id
      end
      from = '(' .. id
    end
    looked_at = looked_at + #rows
    is_done = #rows < TAKEN_OVER_A_CALL
  until is_done or taken >= TAKEN_OVER_A_CALL or looked_at >= READ_A_CALL
  if taken > 0 then
    remember(META, now)
  end
  if last_fed ~= fed then
    redis.call('HSET', META, 'fed', last_fed)
  end
  if is_done then
    redis.call('HSET', META, 'swept', now)
    redis.call('HDEL', META, 'sweeping')
  else
    redis.call('HSET', META, 'sweeping', from)
  end
  return last_fed, not is_done
end
