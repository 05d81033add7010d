-- Part of claim, for groups: entries that consumers of other programs hold for longer than a lease. They become
-- messages of the group. Reads claim.now, and advances it by a tick per entry from the future. Adds to
-- claim.reclaimed, buried and parked. Sets claim.is_keyed, has_acked and is_cut_short.

-- @include lib/claim/on_dead.lua
-- @include lib/record.lua
-- @include lib/counts.lua
-- @include lib/history.lua
-- @include lib/bury.lua

local TAKEN_OVER_PER_CALL, LOOKED_THROUGH_PER_CALL = 100, 1000

-- Returns the due time of an entry: when it was published, so that it comes before later entries, but after `last_due`,
-- that of the entry before it. Another program may give an entry an id from the future. Then the due time is a new tick
-- of the clock, as for entries that are read.
local function due_since(claim, id, last_due)
  local ms, number = string.match(id, '^(%d+)-(%d+)$')
  local due = math.max(tonumber(ms) * 1000 + tonumber(number), last_due + 1)
  if due <= claim.now then
    return due
  end
  claim.now = claim.now + 1
  return claim.now
end

local function store_entry(id, record, deliveries)
  redis.call('HSET', MSGS, id, record)
  redis.call('HINCRBY', META, 'sent', 1)
  redis.call('HINCRBY', META, 'crashed', deliveries)
  redis.call('HINCRBY', META, 'bytes', #record)
  if #record > LARGE then
    redis.call('HSET', META, 'large', 1)
  end
end

-- Takes over one entry. It takes its place in its lane at once: a claim that skips it as a suspect must not deliver the
-- next one. Returns the due time.
local function take_over(claim, id, holder, overdue, deliveries, last_due)
  local entry = redis.call('XRANGE', STREAM, id, id)[1]
  local is_known = redis.call('HEXISTS', MSGS, id) == 1
  leave_pending(claim, id, holder)
  if not entry or is_known then
    return last_due -- it was trimmed and cannot be delivered, or the group's store has it already
  end
  local due = due_since(claim, id, last_due)
  local record, key = record_of(id, entry[2], due)
  local counts, history = { 0, deliveries, 0, 0, 0, 0, 0 }, { errors = {}, timeline = {} }
  local is_dead = deliveries >= crash_limit
  store_entry(id, record, deliveries)
  if is_dead then
    bury(keys, id, record, #record, 'poison', counts, history, claim.now, key)
    claim.buried = claim.buried + 1
  else
    redis.call('ZADD', WAITING[0], due, id)
    keep_counts(COUNTS, id, counts)
  end
  if key then
    claim.is_keyed = true
    if not is_dead then
      in_its_turn(claim, WAITING[0], id, record)
    end
  end
  for _, each in ipairs({ id, as_text(holder), overdue, is_dead and 1 or 0 }) do
    claim.reclaimed[#claim.reclaimed + 1] = each
  end
  return due
end

-- Searches a bounded part of the pending list for entries of other programs. A sweep of several calls continues at
-- `from`. `fed` is the last entry that the group has read, or false. Returns the new one.
local function take_over_idle(claim, from, fed)
  local lease_ms, looked_at, taken = math.ceil(lease_us / 1000), 0, 0
  local before = from ~= '-' and redis.call('HGET', MSGS, string.sub(from, 2)) -- the last entry of the call before
  local last_due = before and not flaw_of(before) and due_of(before) or 0
  local last_fed, is_done = fed
  repeat
    local rows = redis.pcall('XPENDING', STREAM, GROUP, 'IDLE', lease_ms, from, '+', TAKEN_OVER_PER_CALL)
    if rows.err then
      return fed -- no group yet
    end
    for _, row in ipairs(rows) do
      local id, holder, idle, deliveries = unpack(row)
      if redis.call('HEXISTS', LEASES, id) == 0 then
        last_due, taken = take_over(claim, id, holder, idle * 1000 - lease_us, deliveries, last_due), taken + 1
        last_fed = last_fed and is_before(id, last_fed) and last_fed or id
      end
      from = '(' .. id
    end
    looked_at = looked_at + #rows
    is_done = #rows < TAKEN_OVER_PER_CALL
  until is_done or taken >= TAKEN_OVER_PER_CALL or looked_at >= LOOKED_THROUGH_PER_CALL
  if taken > 0 then
    store_clock(META, claim.now)
  end
  if last_fed ~= fed then
    redis.call('HSET', META, 'fed', last_fed)
  end
  if is_done then
    redis.call('HSET', META, 'swept', claim.now)
    redis.call('HDEL', META, 'sweeping')
  else
    redis.call('HSET', META, 'sweeping', from)
    claim.is_cut_short = true
  end
  return last_fed
end
