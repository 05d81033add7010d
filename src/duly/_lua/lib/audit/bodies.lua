-- Part of audit: messages without a body or a place, and those that cannot be delivered.
-- READS    why; source
-- CHANGES  leases, why, dead, done, and those of lib/audit/moves.lua; in groups those of lib/audit/stream_bodies.lua
-- GIVES    check_nowhere(id, record); check_bodiless(id, place); check_damaged and check_bad_id(id, record, place)

-- @only group
-- @include lib/audit/stream_bodies.lua
-- @end
local check_nowhere, check_bodiless, check_damaged, check_bad_id
do
  -- For a readable message that has not ended; `place` may be nil.
  function check_bad_id(id, record, place)
    fault(id, 'an id that is not text', function()
      if place then
        remove_from(place, id)
      end
      end_lease(id)
      bury_flawed(id, record, #record)
    end)
  end

  function check_damaged(id, record, place)
    fault(id, 'damaged', function()
      remove_from(place, id)
      redis.call('HDEL', keys.leases, id)
      bury_flawed(id, record, #record)
    end)
  end

  function check_nowhere(id, record)
    -- @only group
    if record and flaw_of(record) and check_overwritten(id, parked_as_in_stream(id)) then
      return
    end
    -- @end
    if record and store.is_flawed(record) then
      fault(id, 'damaged body without a place', function()
        end_lease(id)
        bury_flawed(id, record, #record)
      end)
    elseif record and store.has_bad_id(id) and not store.final_place(id) then
      check_bad_id(id, record)
    elseif record then
      fault(id, 'body without a place', function()
        local place, at = store.final_place(id)
        end_lease(id)
        if place then
          redis.call('ZADD', keys[place], at, id)
        else
          requeue(id, record)
        end
      end)
    elseif source ~= 'msgs' then
      fault(id, 'row in ' .. source .. ' of no message', function()
        remove_rows(id)
      end)
    end
  end

  function check_bodiless(id, place)
    -- @only group
    if check_entry(id, place) then
      return
    end
    -- @end
    if place.name == 'done' then
      fault(id, 'finished without a body', function()
        redis.call('ZREM', place.key, id)
        remove_rows(id)
      end)
    elseif place.name == 'dead' and not is_dead_as(keys.why, id, 'body lost') then
      fault(id, 'dead without a body', function()
        keep_full_history(keys.why, id, 'body lost', read_counts(nil), sound_history(keys.why, id), '')
      end)
    elseif place.name ~= 'dead' then
      fault(id, 'place without a body', function()
        remove_from(place, id)
        redis.call('HDEL', keys.leases, id)
        bury_flawed(id, nil, 0)
      end)
    end
  end
end
