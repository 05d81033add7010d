-- Part of audit: messages without a body or a place, and those that cannot be delivered.
-- READS    why; source; in groups the stream
-- CHANGES  leases, why, dead, done, and as lib/audit/moves.lua says; in groups msgs, lanes, wake
-- GIVES    check_nowhere(id, record); check_bodiless(id, place); check_damaged and check_bad_id(id, record, place);
--          for groups: check_entry(id, place), check_overwritten(id, place)

-- @only group
-- @include lib/audit/entries.lua
-- @end
local check_nowhere, check_bodiless, check_damaged, check_bad_id
-- @only group
local check_entry, check_overwritten
-- @end
do
  -- For a sound message that has not ended; `place` may be nil.
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

  local function is_dead_as(id, reason)
    local row = sound_why(keys.why, id)
    return row and row[1] == reason
  end

  -- @only group
  -- For a message without a readable body, at a place. False: the stream does not help.
  function check_entry(id, place)
    local record = not is_dead_as(id, 'body lost') and record_in_stream(id, place)
    if is_unread(id) then
      fault(id, 'place of an entry that was not read yet', function()
        remove_from(place, id)
        remove_rows(id)
      end)
      return true
    elseif record then
      fault(id, 'a body that only the stream has', function()
        redis.call('HSET', keys.msgs, id, record)
        -- A damaged letter kept its lane: its record did not say which one that was.
        if is_dead_as(id, 'damaged') and leave_lane(keys, id, record, now) then
          leave_token(keys.wake)
        end
      end)
    end
    return record
  end

  -- For a body that cannot be read; `place` may be nil. False: the stream does not help.
  function check_overwritten(id, place)
    if place then
      return check_entry(id, place)
    elseif not (is_unread(id) and fields_in_stream(id)) then
      return false
    end
    fault(id, 'body of an entry that was not read yet', function()
      redis.call('HDEL', keys.msgs, id)
      remove_rows(id)
    end)
    return true
  end
  -- @end

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
    elseif place.name == 'dead' and not is_dead_as(id, 'body lost') then
      fault(id, 'dead without a body', function()
        keep_end(keys.why, id, 'body lost', read_counts(nil), sound_past(keys.why, id), '')
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
