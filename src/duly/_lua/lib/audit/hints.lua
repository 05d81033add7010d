-- Part of audit: what the fields of `meta` are, and what they must say of a message.

-- @include lib/large.lua

local COUNTERS = {
  'sent', 'delivered', 'acked', 'retried', 'deferred', 'released', 'recycled', 'crashed', 'buried', 'redriven',
  'cancelled', 'expired', 'dropped', 'purged', 'moved', 'trimmed', 'done_trimmed', 'duplicates', 'replaced', 'filtered',
  'published', 'entered', 'largest', 'repairs',
}

-- What `meta` must say of a message that has a body: of its priority also when it is over, for it may come back.
local function check_hints(record, is_live)
  if flaw_of(record) then
    return
  end
  local in_use, large, keyed = unpack(redis.call('HMGET', keys.meta, 'priorities', 'large', 'keyed'))
  local priority = store.waits_under(record)
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
