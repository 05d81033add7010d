-- Part of audit, for groups: messages whose body the stream may still have.
-- READS    why; the stream; now
-- CHANGES  msgs, lanes, wake, and those of lib/audit/moves.lua
-- GIVES    check_entry(id, place); check_overwritten(id, place)

-- @include lib/audit/stream_entries.lua
local check_entry, check_overwritten
do
  -- For a message without a readable body, at a place. False: the stream does not help.
  function check_entry(id, place)
    local record = not is_dead_as(keys.why, id, 'body lost') and record_in_stream(id, place)
    if is_unread(id) then
      fault(id, 'place of an entry that was not read yet', function()
        remove_from(place, id)
        remove_rows(id)
      end)
      return true
    elseif record then
      fault(id, 'a body that only the stream has', function()
        redis.call('HSET', keys.msgs, id, record)
        -- A damaged letter kept its lane, because its key could not be read.
        if is_dead_as(keys.why, id, 'damaged') and leave_lane(keys, id, record, now) then
          leave_wake_token(keys.wake)
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
end
