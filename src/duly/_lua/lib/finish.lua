-- Finishes messages that are held: they are gone, or kept in `done` with what their handler returned.

-- @include lib/record.lua
-- @include lib/lease.lua
-- @include lib/leased.lua
-- @include lib/counts.lua
-- @include lib/why.lua
-- @include lib/lanes.lua
-- @include lib/trim.lua
-- @include lib/wake.lua
-- @include lib/limits.lua

-- Moves one message to `done`; the bytes that it has there. A body that is lost is not kept.
local function keep_finished(keys, each, result, now)
  local bytes = redis.call('HSTRLEN', keys.msgs, each.id)
  if bytes == 0 then
    redis.call('HDEL', keys.msgs, each.id)
    redis.call('HDEL', keys.why, each.id)
  else
    local past = past_of(keys.why, each.id)
    add_event(past, now, 'ack', each.lease)
    keep_end(keys.why, each.id, '', counts_of(keys.counts, each.id), past, result)
    redis.call('ZADD', keys.done, now, each.id)
  end
  redis.call('HDEL', keys.counts, each.id)
  return bytes
end

local function forget_finished(keys, ids)
  redis.call('HDEL', keys.msgs, unpack(ids))
  redis.call('HDEL', keys.counts, unpack(ids))
  redis.call('HDEL', keys.why, unpack(ids))
end

-- `held` are messages with their leases, as lib/lease.lua sorts them; `results` what their handlers returned, in that
-- order; `keep` how much is kept in `done`, or nil. The caller has checked everything and remembers `now`.
local function finish(keys, held, results, keep, now)
  local ids, owners, size, kept = {}, {}, 0, 0
  for i, each in ipairs(held) do
    ids[i] = each.id
    size = size + each.lease.size
    if each.lease.key then
      owners[#owners + 1] = each.lease.key
      owners[#owners + 1] = each.id
    end
  end
  remove_leased(keys.leased, ids)
  redis.call('HDEL', keys.leases, unpack(ids))
  if keep then
    for i, each in ipairs(held) do
      kept = kept + keep_finished(keys, each, results[i], now)
    end
    redis.call('HINCRBY', keys.meta, 'done_bytes', kept)
    trim(keys, keys.done, 'done_bytes', 'done_trimmed', keep, now, #held)
  else
    forget_finished(keys, ids)
  end
  redis.call('HINCRBY', keys.meta, 'acked', #held)
  redis.call('HINCRBY', keys.meta, 'bytes', 0 - size)
  if #owners > 0 and hand_on(keys, owners, now) then
    leave_token(keys.wake)
  elseif not announce_room(keys.wake, keys.meta, redis.call('HGET', keys.meta, 'limited')) then
    take_token_if_empty(keys.wake, keys.msgs)
  end
end
