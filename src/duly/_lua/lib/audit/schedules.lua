-- Part of audit: schedules and their next slots.
-- READS    schedules, slots, meta: `slot`; now
-- CHANGES  schedules, slots, wake, meta: `slot`
-- GIVES    check_schedule(name, row); check_slot(name); check_next_slot()

local check_schedule, check_slot, check_next_slot
do
  -- @include lib/schedule.lua

  local function is_schedule(row)
    local created, after, last, paused = read_head(row)
    return created and is_time(created) and is_time(after) and is_time(last) and paused <= 1
  end

  -- Checks the head of a row only. Clients read the plan, and another version may know one that this does not.
  function check_schedule(name, row)
    if not is_schedule(row) then
      return fault(name, 'a schedule that cannot be read', function()
        redis.call('HDEL', keys.schedules, name)
        set_next_run(keys.slots, keys.meta, name, false)
      end)
    end
    local _, _, _, paused = read_head(row)
    local has_slot = redis.call('ZSCORE', keys.slots, name)
    if paused == 0 and not has_slot then
      fault(name, 'a schedule that nobody looks at', function()
        set_next_run(keys.slots, keys.meta, name, now)
        leave_wake_token(keys.wake)
      end)
    elseif paused == 1 and has_slot then
      fault(name, 'a paused schedule that is looked at', function()
        set_next_run(keys.slots, keys.meta, name, false)
      end)
    end
  end

  function check_slot(name)
    local at = tonumber(redis.call('ZSCORE', keys.slots, name))
    if redis.call('HEXISTS', keys.schedules, name) == 0 then
      fault(name, 'a slot of no schedule', function()
        set_next_run(keys.slots, keys.meta, name, false)
      end)
    elseif not (at >= 0 and at <= now + LONGEST_US and at == math.floor(at)) then
      fault(name, 'a slot at no time', function()
        set_next_run(keys.slots, keys.meta, name, now)
        leave_wake_token(keys.wake)
      end)
    end
  end

  function check_next_slot()
    local first, noted = redis.call('ZRANGE', keys.slots, 0, 0, 'WITHSCORES'), redis.call('HGET', keys.meta, 'slot')
    if tonumber(first[2]) ~= tonumber(noted or nil) then
      fault('slot', 'the next slot is noted wrong', function()
        set_next_run(keys.slots, keys.meta, '', false)
        leave_wake_token(keys.wake)
      end)
    end
  end
end
