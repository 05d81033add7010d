-- Part of claim: leases that ran out. The message counts a crash and waits again with its due time, or is buried at the
-- crash limit. Reads claim.now. Adds to claim.reclaimed and claim.buried. Sets claim.is_cut_short, and for a group
-- claim.has_acked.

-- @include lib/claim/on_dead.lua
-- @include lib/record.lua
-- @include lib/lease.lua
-- @include lib/counts.lua
-- @include lib/history.lua
-- @include lib/bury.lua

local RECLAIMED_PER_CALL = 100

local function put_back(id, record, counts, history)
  local due = counts[DUE] > 0 and counts[DUE] or due_of(record)
  redis.call('ZADD', keys.waiting[priority_of(record)], due, id)
  keep_counts(COUNTS, id, counts)
  keep_history(WHY, id, history)
  if has(flags_of(record), FLAG_TTL) then
    redis.call('ZADD', EXPIRES, expiry_of(record), id)
  end
end

local function reclaim(claim, id, deadline)
  local stored, record = redis.call('HGET', LEASES, id), redis.call('HGET', MSGS, id)
  local lease, now, reclaimed = stored and read_lease(stored), claim.now, claim.reclaimed
  local counts, history = counts_of(COUNTS, id), history_of(WHY, id)
  counts[CRASHES] = counts[CRASHES] + 1
  add_event(history, now, 'crash', lease)
  -- @only group
  leave_pending(claim, id, lease and consumer_of(lease)) -- first, because it fails if the stream has another type
  -- @end
  drop_leased(LEASED, { id })
  redis.call('HDEL', LEASES, id)
  redis.call('HINCRBY', META, 'crashed', 1)
  local flaw = flaw_of(record)
  local is_dead = flaw or counts[CRASHES] >= crash_limit
  if is_dead then
    local size = lease and lease.size or record and #record or 0
    bury(keys, id, record, size, flaw or 'poison', counts, history, now, lease and lease.key)
    claim.buried = claim.buried + 1
  else
    put_back(id, record, counts, history)
  end
  reclaimed[#reclaimed + 1] = id
  reclaimed[#reclaimed + 1] = lease and consumer_of(lease) or ''
  reclaimed[#reclaimed + 1] = now - deadline
  reclaimed[#reclaimed + 1] = is_dead and 1 or 0
end

local function reclaim_some(claim)
  local ran_out = redis.call('ZRANGEBYSCORE', LEASED, '-inf', claim.now, 'WITHSCORES', 'LIMIT', 0, RECLAIMED_PER_CALL)
  for i = 1, #ran_out, 2 do
    reclaim(claim, ran_out[i], tonumber(ran_out[i + 1]))
  end
  claim.is_cut_short = #ran_out == 2 * RECLAIMED_PER_CALL
end
