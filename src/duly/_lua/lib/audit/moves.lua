-- Part of audit: the moves that a repair makes.
-- READS    counts, why, meta; now
-- CHANGES  leased, leases, waiting*, expires, counts, why, wake, meta: `priorities` and `clock`; dead and its counters,
--          as in lib/bury.lua; the place that remove_from() is given; of a group the pending list
-- GIVES    end_lease(id); requeue(id, record); remove_rows(id); bury_flawed(id, record, size);
--          remove_from(place, id)

local end_lease, requeue, remove_rows, bury_flawed, remove_from
do
  function end_lease(id)
    redis.call('HDEL', keys.leases, id)
    -- @only group
    ack_entries(group_of(keys.leased), { id })
    -- @end
  end

  function requeue(id, record)
    redis.call('ZADD', keys.waiting[store.waits_under(record)], own_due(id, record), id)
    local in_use = redis.call('HGET', keys.meta, 'priorities') or '0'
    redis.call('HSET', keys.meta, 'priorities', with_priority(in_use, store.waits_under(record)))
    if has(flags_of(record), FLAG_TTL) then
      redis.call('ZADD', keys.expires, expiry_of(record), id)
    end
    leave_wake_token(keys.wake)
  end

  function remove_rows(id)
    redis.call('HDEL', keys.leases, id)
    redis.call('HDEL', keys.counts, id)
    redis.call('HDEL', keys.why, id)
    redis.call('ZREM', keys.expires, id)
  end

  function bury_flawed(id, record, size)
    local counted, history = sound_counts(keys.counts, id), sound_history(keys.why, id)
    bury(keys, id, record, size, flaw_of(record) or 'damaged', counted, history, now)
    store_clock(keys.meta, now)
  end

  function remove_from(place, id)
    if place.name == 'leased' then
      remove_leased(place.key, { id })
    else
      redis.call('ZREM', place.key, place.member)
    end
  end
end
