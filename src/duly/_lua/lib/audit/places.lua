-- Part of audit: where a message is.
-- READS    counts, why, leases, leased, waiting*, parked, dead, done; now
-- CHANGES  nothing
-- GIVES    own_due(id, record); is_time_of_finish(score, id, record); places_of(id, record), a list of
--          { name, key, member, score }

local own_due, is_time_of_finish, places_of
do
  -- When a message is due: the time that a retry or a defer set, or that of its record (I3).
  function own_due(id, record)
    local due = sound_counts(keys.counts, id)[DUE]
    return due > 0 and due or due_of(record)
  end

  -- A message can only finish after it was due, and not in the future.
  function is_time_of_finish(score, id, record)
    return score > own_due(id, record) and score <= now
  end

  -- Infer the true place when rows contradict the stored one; nil: they do not. Another program then moved the message:
  -- - it has ended by `why`, has neither lease nor counts, and its score is the time of its end or impossible there;
  -- - it is dead without an end in `why`, and has a lease, or the score with which it waited.
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

  -- The places of an id. A repair keeps the first, so the most trusted comes first: where it ended by `why`; the
  -- inferred place; leased with a lease; waiting under its priority; parked; waiting under another one; leased without
  -- a lease; dead; done.
  function places_of(id, record)
    local places = {}
    local function add_if_stored(name, key, member)
      local score = redis.call('ZSCORE', key, member or id)
      if score and not (name == 'leased' and id == ENCODING_GUARD) then
        places[#places + 1] = { name = name, key = key, member = member or id, score = tonumber(score) }
      end
    end
    local own = not flaw_of(record) and store.waits_under(record)
    local has_lease = redis.call('HEXISTS', keys.leases, id) == 1
    if has_lease then
      add_if_stored('leased', keys.leased)
    end
    if own then
      add_if_stored('waiting', keys.waiting[own])
      local key = key_of(record)
      if key then
        add_if_stored('parked', keys.parked, parked_member(key, record, id))
      end
    end
    for priority, key in pairs(keys.waiting) do
      if priority ~= own then
        add_if_stored('misplaced', key)
      end
    end
    if not has_lease then
      add_if_stored('leased', keys.leased)
    end
    add_if_stored('dead', keys.dead)
    add_if_stored('done', keys.done)
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
