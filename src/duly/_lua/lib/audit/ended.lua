-- Part of audit: a message that is dead or done.
-- READS    why, leases, lanes, counts; now
-- CHANGES  why, dead, done, leases, and those of lib/audit/moves.lua
-- GIVES    check_ended(id, record, place)

local check_ended
do
  -- Whether a message in `done` was never acked. Its timeline has no ack, and its score cannot be the time of one:
  -- another program moved it there from `waiting*` or `leased`. Or it still owns its lane, which an ack hands on.
  local function is_unfinished(id, record, place)
    local row = sound_why(keys.why, id)
    local last = row and row[8][#row[8]]
    if place.name ~= 'done' or flaw_of(record) or (last and last[2] == 'ack') then
      return false
    end
    local lane = key_of(record) and redis.call('HGET', keys.lanes, key_of(record))
    local is_next = lane and string.sub(lane, 2) == id
    return is_next or not is_time_of_finish(place.score, id, record)
  end

  function check_ended(id, record, place)
    if is_unfinished(id, record, place) then
      return fault(id, 'finished by nobody', function()
        remove_from(place, id)
        end_lease(id)
        requeue(id, record)
      end)
    end
    if place.name == 'dead' and redis.call('HEXISTS', keys.why, id) == 0 then
      fault(id, 'dead without a reason', function()
        keep_full_history(keys.why, id, 'unknown', sound_counts(keys.counts, id), { errors = {}, timeline = {} }, '')
      end)
    end
    if not (place.score >= 0 and place.score < NO_TIME) then
      fault(id, 'over since no time', function()
        redis.call('ZADD', place.key, now, id)
      end)
    end
    if redis.call('HEXISTS', keys.leases, id) == 1 then
      fault(id, 'a lease, but not leased', function()
        end_lease(id)
      end)
    end
    if not flaw_of(record) then
      check_expiry(id, record, false)
    end
  end
end
