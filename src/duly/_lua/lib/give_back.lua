-- What retry, defer, release and recycle share: held messages go back to those that wait.
--
-- The four scripts have the same KEYS, and ARGV begins with sequence, digits; then the settles, each
-- beginning with id, fence.

-- @include lib/call.lua
-- @include lib/clock.lua
-- @include lib/drain.lua
-- @include lib/record.lua
-- @include lib/lease.lua
-- @include lib/leased.lua
-- @include lib/counts.lua
-- @include lib/why.lua
-- @include lib/waiting.lua
-- @include lib/wake.lua
-- @include lib/bury.lua

-- For each message that is still held, `move(held, record, counted, clock)` changes `counted`, and
-- returns the record to store (nil: as it is) and the due time. The lease ends here.
local function give_back(stride, counter, move)
  local sequence, digits, first_settle = ARGV[1], ARGV[2], 3
  local keys = {
    call = KEYS[1], msgs = KEYS[2], leased = KEYS[3], leases = KEYS[4], counts = KEYS[5], why = KEYS[6],
    expires = KEYS[7], dead = KEYS[8], wake = KEYS[9], meta = KEYS[10],
    waiting = waiting_by_priority(11, digits),
  }

  let_a_full_server_drain(keys.leases)
  local repeated = answered(keys.call, sequence)
  if repeated then
    return repeated
  end
  local held, lost = sorted_by_holding(keys.leases, first_settle, stride)
  if #held == 0 then
    return lost
  end
  for _, each in ipairs(held) do
    if not keys.waiting[each.lease.priority] then
      return redis.error_reply('ERR message ' .. each.id .. ' has a priority that is not in ' .. digits)
    end
  end

  local now = tick(redis.call('HGET', keys.meta, 'clock'))
  for i, each in ipairs(held) do
    local id, record = each.id, redis.call('HGET', keys.msgs, each.id)
    local counted = counts_of(keys.counts, id)
    remove_leased(keys.leased, { id })
    redis.call('HDEL', keys.leases, id)
    local flaw = flaw_of(record)
    if flaw then -- it cannot be delivered again: a dead letter
      bury(keys, id, record, each.lease.size, flaw, counted, errors_of(keys.why, id), now)
    else
      local rewritten, due = move(each, record, counted, now + i - 1, keys)
      redis.call('ZADD', keys.waiting[each.lease.priority], due, id)
      if counted[FAILURES] + counted[CRASHES] + counted[DEFERS] + counted[RELEASES] > 0 then
        redis.call('HSET', keys.counts, id, cmsgpack.pack(counted))
      else
        redis.call('HDEL', keys.counts, id)
      end
      if has(flags_of(record), FLAG_TTL) then
        redis.call('ZADD', keys.expires, expiry_of(rewritten or record), id)
      end
    end
  end
  remember(keys.meta, now + #held - 1)
  redis.call('HINCRBY', keys.meta, counter, #held)
  leave_token(keys.wake)
  return answer(keys.call, sequence, lost)
end
