-- Part of audit: a sound message that waits, is parked or is leased.
-- READS    leases, leased, expires, counts, why, lanes; now
-- CHANGES  leases, leased, expires, counts, waiting*, wake, and those of lib/audit/moves.lua and lib/audit/lanes.lua
-- GIVES    check_live(id, record, place); check_expiry(id, record, is_waiting)

local check_live, check_expiry
do
  -- A lease repeats key and priority of the record: a settle reads them there, and hands the lane on by them.
  local function is_lease_of(text, record)
    if not is_lease(text) then
      return false
    end
    local lease = read_lease(text)
    return lease.priority == priority_of(record) and lease.key == key_of(record)
  end

  -- Returns false if the lease was bad. A repair lets the message wait.
  local function check_lease(id, record)
    local text = redis.call('HGET', keys.leases, id)
    if text and is_lease_of(text, record) then
      return true
    end
    fault(id, text and 'a lease that cannot be read' or 'leased to nobody', function()
      remove_leased(keys.leased, { id })
      redis.call('HDEL', keys.leases, id)
      requeue(id, record)
    end)
    return false
  end

  -- `expires` has exactly the waiting messages with a ttl, and when it ends: claims drop every message in it.
  function check_expiry(id, record, is_waiting)
    local expires_at = redis.call('ZSCORE', keys.expires, id)
    local has_ttl = has(flags_of(record), FLAG_TTL)
    local function set_expiry()
      redis.call('ZADD', keys.expires, expiry_of(record), id)
    end
    local function clear_expiry()
      redis.call('ZREM', keys.expires, id)
    end
    if is_waiting and has_ttl and not expires_at then
      fault(id, 'a ttl that nobody watches', set_expiry)
    elseif is_waiting and has_ttl and tonumber(expires_at) ~= expiry_of(record) then
      fault(id, 'a ttl that is watched at a wrong time', set_expiry)
    elseif expires_at and not is_waiting then
      fault(id, 'in expires, but not waiting', clear_expiry)
    elseif expires_at and not has_ttl then
      fault(id, 'in expires, but without a ttl', clear_expiry)
    end
  end

  -- A message waits for its due time. The owner of a lane may instead have the time when it got the lane. If `why`
  -- shows earlier deliveries and `counts` is lost, the time of the retry is unknown, and any later time is accepted.
  local function check_time(id, record, place, owns_lane)
    local due, own = due_of(record), own_due(id, record)
    local is_let_in = owns_lane and place.score <= now and (place.score >= due or not (due >= 0 and due < NO_TIME))
    local stored = redis.call('HGET', keys.counts, id)
    local is_known = stored and is_counts(stored) and not counts_lack_events(id, stored)
    local lost_its_counts = not is_known and redis.call('HEXISTS', keys.why, id) == 1
    local would_wait_forever = place.score >= NO_TIME and own < NO_TIME
    if place.score == own or is_let_in or (lost_its_counts and place.score >= due and not would_wait_forever) then
      return
    end
    -- Either time may be wrong. The later one counts, so that the message is not delivered early (I3).
    if is_known and place.score > own and place.score <= now + LONGEST_US then
      return fault(id, 'waits for another time than it counts', function()
        local counted = read_counts(stored)
        counted[DUE] = math.ceil(place.score)
        keep_counts(keys.counts, id, counted)
        redis.call('ZADD', place.key, counted[DUE], id)
      end)
    end
    fault(id, 'waits for a wrong time', function()
      redis.call('ZADD', place.key, own, id)
      leave_wake_token(keys.wake)
    end)
  end

  local function check_leased(id, record, place, key, lane)
    if not check_lease(id, record) then
      return
    end
    if place.score > now + LONGEST_US then
      fault(id, 'a lease without an end', function()
        redis.call('ZADD', keys.leased, now + ENDLESS_LEASE_US, id)
      end)
    end
    if key then
      check_own_lane(id, key, lane)
    end
    check_expiry(id, record, false)
  end

  -- Checks a message that waits or is parked.
  local function check_unleased(id, record, place, key, lane)
    if redis.call('HEXISTS', keys.leases, id) == 1 then
      fault(id, 'a lease, but not leased', function()
        end_lease(id)
      end)
    end
    if place.name == 'waiting' then
      check_time(id, record, place, lane and string.sub(lane, 2) == id)
      if key and was_delivered(sound_counts(keys.counts, id)) then
        check_own_lane(id, key, lane)
      end
    end
    check_expiry(id, record, true)
  end

  function check_live(id, record, place)
    if place.name == 'misplaced' then
      return fault(id, 'waits under a wrong priority', function()
        redis.call('ZREM', place.key, id)
        requeue(id, record)
      end)
    end
    local key = key_of(record)
    local lane = key and redis.call('HGET', keys.lanes, key)
    if place.name == 'leased' then
      check_leased(id, record, place, key, lane)
    else
      check_unleased(id, record, place, key, lane)
    end
  end
end
