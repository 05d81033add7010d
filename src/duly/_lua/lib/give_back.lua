-- Gives held messages back to the queue, for retry, defer, release and recycle. The four scripts have the same keys,
-- and their rows of settles begin with id and fence. A message that goes back keeps its lane.

-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/held_settles.lua
-- @include lib/leased.lua
-- @include lib/counts.lua
-- @include lib/history.lua
-- @include lib/wake.lua
-- @include lib/bury.lua

-- For each held message, `move(held, record, counted, clock)` changes `counted`, and returns the record to store (nil:
-- unchanged) and the due time. This function ends the lease. If `refusal_of(held)` returns a reason, the call is an
-- error and changes nothing.
local function give_back(counter, move, refusal_of)
  local held, lost = held_settles(keys.leases)
  if #held == 0 then
    return lost
  end
  local now = tick(redis.call('HGET', keys.meta, 'clock'))
  local ids = {}
  for i, each in ipairs(held) do
    local refusal = refusal_of and refusal_of(each)
    if refusal then
      return redis.error_reply('ERR message ' .. string.gsub(each.id, '%c', '?') .. ' ' .. refusal)
    end
    ids[i] = each.id
  end
  remove_leased(keys.leased, ids)
  redis.call('HDEL', keys.leases, unpack(ids))
  for i, each in ipairs(held) do
    local id, record = each.id, redis.call('HGET', keys.msgs, each.id)
    local counted = counts_of(keys.counts, id)
    local flaw = flaw_of(record)
    if flaw then -- it cannot be delivered again: a dead letter
      bury(keys, id, record, each.lease.size, flaw, counted, history_of(keys.why, id), now, each.lease.key)
    else
      local rewritten, due = move(each, record, counted, now + i - 1)
      redis.call('ZADD', keys.waiting[each.lease.priority], due, id)
      keep_counts(keys.counts, id, counted)
      if has(flags_of(record), FLAG_TTL) then
        redis.call('ZADD', keys.expires, expiry_of(rewritten or record), id)
      end
    end
  end
  store_row_bytes(keys)
  store_clock(keys.meta, now + #held - 1)
  redis.call('HINCRBY', keys.meta, counter, #held)
  leave_wake_token(keys.wake)
  return answer(lost)
end
