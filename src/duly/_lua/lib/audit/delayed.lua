-- Part of audit, for topics: delayed publishes, and keys that only queues and groups have.
-- READS    msgs; NO_KEYS_OF_TOPICS
-- CHANGES  msgs, why, waiting*, dead, NO_KEYS_OF_TOPICS, and those of lib/audit/moves.lua
-- GIVES    check_entered(id, places); check_dead_but_sound(id, record, place); check_why_of_delayed(id, stored);
--          check_keys_of_queues()

local check_entered, check_dead_but_sound, check_why_of_delayed, check_keys_of_queues
do
  local NO_KEYS_OF_TOPICS = { 'leased', 'leases', 'counts', 'expires', 'done', 'lanes', 'parked', 'schedules', 'slots' }

  function check_entered(id, places)
    fault(id, 'waits, but has entered the stream', function()
      for _, place in ipairs(places) do
        redis.call('ZREM', place.key, place.member)
      end
      redis.call('HDEL', keys.msgs, id)
      remove_rows(id)
    end)
  end

  -- A topic's dead letters cannot be redriven, so a publish that can enter the stream must not be dead.
  function check_dead_but_sound(id, record, place)
    fault(id, 'dead, though it can enter the stream', function()
      remove_from(place, id)
      redis.call('HDEL', keys.why, id)
      requeue(id, record)
    end)
  end

  -- A delayed publish has no row in `why`: it was never delivered.
  function check_why_of_delayed(id, stored)
    local place = places_of(id, redis.call('HGET', keys.msgs, id))[1]
    local function remove_row()
      redis.call('HDEL', keys.why, id)
    end
    if not is_why(stored) then
      fault(id, 'a past that cannot be read', remove_row)
    elseif place and place.name ~= 'dead' then
      fault(id, 'alive, but with a reason to be dead', remove_row)
    end
  end

  function check_keys_of_queues()
    for _, name in ipairs(NO_KEYS_OF_TOPICS) do
      if redis.call('EXISTS', keys[name]) == 1 then
        fault(name, 'a key that no topic has', function()
          redis.call('UNLINK', keys[name])
        end)
      end
    end
  end
end
