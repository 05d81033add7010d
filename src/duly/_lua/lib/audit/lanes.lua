-- Part of audit: lanes, and the messages parked in them.
-- READS    msgs, counts, lanes, parked; repair, cursor
-- CHANGES  lanes, parked, leases, and those of lib/audit/moves.lua
-- GIVES    check_own_lane(id, key, lane); check_lane(key, stored); check_parked_scores(); check_parked_member(member)
--          before the check of the parked message itself, check_lane_ahead(id, key) after it

local check_own_lane, check_lane, check_parked_scores, check_parked_member, check_lane_ahead
do
  local UNPARKED_PER_CALL, UNPARKED_PER_LANE = 100, 2

  -- Whether a lane must stay with an id: it is leased, dead or was delivered before.
  local function keeps_its_lane(id)
    local record = redis.call('HGET', keys.msgs, id)
    local place = places_of(id, record)[1]
    if not place or flaw_of(record) then
      return false
    end
    return place.name == 'leased' or place.name == 'dead' or was_delivered(sound_counts(keys.counts, id))
  end

  -- A message that is leased, or was delivered before, owns its lane. Otherwise another of its key overtakes it (I7).
  function check_own_lane(id, key, lane)
    local owner = lane and string.sub(lane, 2)
    if owner == id or (owner and keeps_its_lane(owner)) then
      return
    end
    fault(id, 'in work without its lane', function()
      redis.call('HSET', keys.lanes, LANES_GUARD_FIELD, LANES_GUARD, key, SOME_PARKED .. id)
    end)
  end

  -- Whether `parked` should have this member for the record.
  local function is_parked_as(member, id, record)
    local key = not flaw_of(record) and key_of(record)
    return key and parked_member(key, record, id) == member
  end

  -- Frees a lane without an owner: the first parked messages wait again, and claims put them in order. None of them
  -- gets the lane, because its next owner may be waiting already. The number per call is bounded; later steps find the
  -- other messages parked in a lane without an owner.
  local left_to_unpark = UNPARKED_PER_CALL
  local function reset_lane(key)
    local count = math.max(left_to_unpark, UNPARKED_PER_LANE)
    free_lanes(keys.lanes, { key })
    for _, member in ipairs(first_parked(keys.parked, key, count)) do
      left_to_unpark = left_to_unpark - 1
      local id = id_of_parked(member)
      local record = redis.call('HGET', keys.msgs, id)
      if is_parked_as(member, id, record) then
        redis.call('ZREM', keys.parked, member)
        requeue(id, record)
      end
    end
  end

  local function check_parked_elsewhere(id, member, record)
    local is_lost = id and not record and #places_of(id, record) == 0
    -- @only group
    if is_lost and check_entry(id, { name = 'parked', key = keys.parked, member = member }) then
      return false
    end
    -- @end
    fault(id or member, is_lost and 'place without a body' or 'parked where it does not belong', function()
      redis.call('ZREM', keys.parked, member)
      if is_lost then
        redis.call('HDEL', keys.leases, id)
        bury_flawed(id, nil, 0)
      end
    end)
    return not is_lost and id or nil
  end

  -- Checks a member of `parked`. Returns the id of a message that the caller has to check, or nil, and its key if it is
  -- parked where it belongs.
  function check_parked_member(member)
    if not redis.call('ZSCORE', keys.parked, member) then
      return nil -- an earlier repair of this step let it wait
    end
    local id = string.find(member, '\0', 1, true) and id_of_parked(member)
    local record = id and redis.call('HGET', keys.msgs, id)
    if not is_parked_as(member, id, record) then
      return check_parked_elsewhere(id, member, record)
    end
    return id, key_of(record)
  end

  -- The lane of a parked message has an owner, and a mark that others are parked behind it.
  function check_lane_ahead(id, key)
    local lane = redis.call('HGET', keys.lanes, key)
    if not lane or string.sub(lane, 2) == id then
      fault(id, 'parked behind nobody', function()
        reset_lane(key)
      end)
    elseif string.sub(lane, 1, 1) ~= SOME_PARKED then
      fault(id, 'parked behind one that does not know', function()
        redis.call('HSET', keys.lanes, key, SOME_PARKED .. string.sub(lane, 2))
      end)
    end
  end

  -- The owner of a lane is a message of its key that waits, is leased, or is dead and blocks the lane.
  function check_lane(key, stored)
    local id, mark = string.sub(stored, 2), string.sub(stored, 1, 1)
    local record = redis.call('HGET', keys.msgs, id)
    local place = places_of(id, record)[1]
    local is_its_key = record and not flaw_of(record) and key_of(record) == key
    count_id()
    if not is_its_key or not place or place.name == 'parked' or place.name == 'done' then
      fault(id, 'the lane ' .. key .. ' belongs to nobody', function()
        reset_lane(key)
      end)
    elseif mark ~= NONE_PARKED and mark ~= SOME_PARKED then
      fault(id, 'the lane ' .. key .. ' has no mark', function()
        redis.call('HSET', keys.lanes, key, SOME_PARKED .. id)
      end)
    end
  end

  -- All members of `parked` have the score 0. With others they are not in the order of their bytes, and ZRANGEBYLEX
  -- misses some. So this step comes before the lanes.
  function check_parked_scores()
    local from = repair and 0 or tonumber(cursor)
    for _, range in ipairs({ { '-inf', '(0' }, { '(0', '+inf' } }) do
      local wrong = redis.call('ZRANGEBYSCORE', keys.parked, range[1], range[2], 'LIMIT', from, IDS_PER_CALL)
      for _, member in ipairs(wrong) do
        local id = string.find(member, '\0', 1, true) and id_of_parked(member) or member
        fault(id, 'parked out of its order', function()
          redis.call('ZADD', keys.parked, 0, member)
        end)
      end
      if #wrong == IDS_PER_CALL then
        continue_at(tostring(from + IDS_PER_CALL))
      end
    end
  end
end
