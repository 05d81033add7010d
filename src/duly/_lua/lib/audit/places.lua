-- Part of audit: where a message is.
-- READS    counts, why, leases, leased, waiting*, parked, dead, done; now
-- CHANGES  nothing
-- GIVES    own_due(id, record); is_time_of_finish(score, id, record); places_of(id, record), a list of
--          { name, key, member, score }

local own_due, is_time_of_finish, places_of
do
  -- Its own place: a retry or a defer may have given it a later one, which must not be forgotten (I3).
  function own_due(id, record)
    local due = sound_counts(keys.counts, id)[DUE]
    return due > 0 and due or due_of(record)
  end

  -- Finishing comes after the message was due, and has passed.
  function is_time_of_finish(score, id, record)
    return score > own_due(id, record) and score <= now
  end

  -- Where the rows of a message say that it is, while its only place is one that they rule out: it was moved there. It
  -- has the score of its end, or none that anything has there, and is not at work; or it is dead without an end, and
  -- leased, or has the time that it waits for. nil: they do not say.
  local function inferred_place(id, record, place)
    local over, at = store.final_place(id)
    local lease, own = redis.call('HGET', keys.leases, id), own_due(id, record)
    if over and over ~= place.name and not lease and redis.call('HEXISTS', keys.counts, id) == 0 then
      local is_impossible_finish = place.name == 'done' and not is_time_of_finish(place.score, id, record)
      if place.score == at or is_impossible_finish or (place.name == 'misplaced' and place.score ~= own) then
        return { name = over, key = keys[over], member = id, score = at }
      end
    elseif not over and place.name == 'dead' and lease and is_lease(lease) then
      return { name = 'leased', key = keys.leased, member = id, score = now + ENDLESS_LEASE_US }
    elseif not over and place.name == 'dead' and place.score == own then
      return { name = 'waiting', key = keys.waiting[store.waits_under(record)], member = id, score = own }
    end
    return nil
  end

  -- The places of an id, in the order in which one is kept when there are several: where it ended, if its past says so;
  -- where its rows say that it is; a lease that is out, the priority that the record names, its lane, other priorities,
  -- a lease of nobody, dead, done.
  function places_of(id, record)
    local places = {}
    local function look(name, key, member)
      local score = redis.call('ZSCORE', key, member or id)
      if score and not (name == 'leased' and id == PILLAR) then
        places[#places + 1] = { name = name, key = key, member = member or id, score = tonumber(score) }
      end
    end
    local own = not flaw_of(record) and store.waits_under(record)
    local has_lease = redis.call('HEXISTS', keys.leases, id) == 1
    if has_lease then
      look('leased', keys.leased)
    end
    if own then
      look('waiting', keys.waiting[own])
      local key = key_of(record)
      if key then
        look('parked', keys.parked, parked_member(key, record, id))
      end
    end
    for priority, key in pairs(keys.waiting) do
      if priority ~= own then
        look('misplaced', key)
      end
    end
    if not has_lease then
      look('leased', keys.leased)
    end
    look('dead', keys.dead)
    look('done', keys.done)
    local over = #places > 1 and store.final_place(id)
    for at, place in ipairs(places) do
      if place.name == over then
        table.insert(places, 1, table.remove(places, at))
        return places
      end
    end
    local inferred = own and places[1] and inferred_place(id, record, places[1])
    if inferred then
      table.insert(places, 1, inferred)
    end
    return places
  end
end
