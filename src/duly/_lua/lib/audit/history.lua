-- Part of audit: the failures, crashes and delays of a message, in `counts` and `why`.
-- READS    leases, msgs, counts, why, waiting*
-- CHANGES  counts, why
-- GIVES    counts_lack_events(id, stored); check_counts(id, stored); check_why(id, stored)

local counts_lack_events, check_counts, check_why
do
  -- Whether a row of `counts` lacks events that the timeline has. Its due time is not trusted then either.
  function counts_lack_events(id, stored)
    local timeline = sound_history(keys.why, id).timeline
    return #timeline > 0 and has_fewer(read_counts(stored), recounted(timeline))
  end

  -- Rebuilds a row of `counts` from the timeline. The place of a message that waits for a retry has the due time.
  local function rebuild_counts(id, record)
    local counted = merged_counts(sound_counts(keys.counts, id), recounted(sound_history(keys.why, id).timeline))
    local place = not flaw_of(record) and redis.call('ZSCORE', keys.waiting[store.waits_under(record)], id)
    local waits_until = math.ceil(tonumber(place or 0))
    if place and waits_until > due_of(record) and waits_until < NO_TIME then
      counted[DUE] = waits_until
    end
    keep_counts(keys.counts, id, counted)
  end

  function check_counts(id, stored)
    local record = redis.call('HGET', keys.msgs, id)
    local place = places_of(id, record)[1]
    if place and (place.name == 'dead' or place.name == 'done') then
      fault(id, 'counts of a message that is over', function()
        redis.call('HDEL', keys.counts, id)
      end)
    elseif not is_counts(stored) then
      fault(id, 'counts that cannot be read', function()
        rebuild_counts(id, record)
      end)
    elseif record and place and counts_lack_events(id, stored) then
      fault(id, 'troubled, but not counted', function()
        rebuild_counts(id, record)
      end)
    end
  end

  -- A live message has no result. In its place stands the progress of the lease that it has.
  local function is_left_over(id, said)
    local lease = said ~= '' and redis.call('HGET', keys.leases, id)
    local fence = lease and is_lease(lease) and read_lease(lease).fence
    return said ~= '' and not (fence and tonumber(string.match(said, '^p(%d+) ')) == fence)
  end

  function check_why(id, stored)
    local record = redis.call('HGET', keys.msgs, id)
    local place = places_of(id, record)[1]
    local is_live = place and place.name ~= 'dead' and place.name ~= 'done'
    if not is_why(stored) then
      fault(id, 'a past that cannot be read', function()
        redis.call('HDEL', keys.why, id)
        if place and place.name == 'done' then
          keep_full_history(keys.why, id, '', read_counts(nil), { errors = {}, timeline = {} }, '')
        end
      end)
    elseif is_live and unpacked(stored)[1] ~= '' then
      fault(id, 'alive, but with a reason to be dead', function()
        keep_history(keys.why, id, sound_history(keys.why, id))
      end)
    elseif is_live and is_left_over(id, unpacked(stored)[10] or '') then
      fault(id, 'progress of a delivery that is over', function()
        keep_history(keys.why, id, sound_history(keys.why, id))
      end)
    end
    if is_live and redis.call('HEXISTS', keys.counts, id) == 0 then
      fault(id, 'troubled, but not counted', function()
        rebuild_counts(id, record)
      end)
    end
  end
end
