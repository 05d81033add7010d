-- Part of audit, for groups: a body that is gone from the group's store may still be in the stream.
-- READS    stream, and its group; meta: `fed`; leases, counts, why, lanes, parked; now
-- CHANGES  nothing
-- GIVES    is_unread(id); fields_in_stream(id); parked_as_in_stream(id), a place; record_in_stream(id, place)

local is_unread, fields_in_stream, parked_as_in_stream, record_in_stream
do
-- @include lib/entry.lua
-- @include lib/entry_ids.lua
-- @include lib/groups_of_stream.lua

  -- Whether the group has not had an entry yet: what there is of it, somebody else has written. Where it was moved
  -- back, it has had more than the stream says.
  function is_unread(id)
    local group, fed = find_group(STREAM, group_of(keys.leased)), redis.call('HGET', keys.meta, 'fed')
    if not is_entry_id(id) or not (group or fed) then
      return false
    end
    return not (group and not is_before(group.last, id)) and not (fed and not is_before(fed, id))
  end

  -- Since when what has lost its body is due. Where nobody knows, since it was published: it did not come before that.
  local function due_without_body(id, place)
    if place.name == 'parked' then
      local digits_at = string.find(place.member, '\0', 1, true) + 2
      return tonumber(string.sub(place.member, digits_at, digits_at + DUE_DIGITS - 1)) or 0
    elseif place.name == 'misplaced' and sound_counts(keys.counts, id)[DUE] == 0 then
      return math.min(place.score, now)
    end
    return math.min(sent_by(id), now)
  end

  -- Whether the group still has something to do with an entry. Nothing says so of one that it has acked.
  local function is_in_use(id, place, record, key)
    if place.name == 'parked' then
      return key and parked_member(key, record, id) == place.member
    end
    for _, rows in ipairs({ keys.leases, keys.counts, keys.why }) do
      if redis.call('HEXISTS', rows, id) == 1 then
        return true
      end
    end
    local lane = key and redis.call('HGET', keys.lanes, key)
    return lane and string.sub(lane, 2) == id
  end

  -- The fields of an entry; nil: the stream does not have it.
  function fields_in_stream(id)
    local entries = is_entry_id(id) and redis.pcall('XRANGE', STREAM, id, id) or {}
    return not entries.err and entries[1] and entries[1][2] or nil
  end

  -- What is parked in a lane, by id: looked up once a call, and as far as that is cheap.
  local parked_by_key = {}
  local function parked_in(key)
    local MOST_PARKED = 10000
    if not parked_by_key[key] then
      local members = {}
      for _, member in ipairs(first_parked(keys.parked, key, MOST_PARKED)) do
        members[id_of_parked(member)] = member
      end
      parked_by_key[key] = members
    end
    return parked_by_key[key]
  end

  -- Where a message is parked whose body does not tell its key any more: the stream does. nil: it is not.
  function parked_as_in_stream(id)
    local fields = fields_in_stream(id)
    if not fields then
      return nil
    end
    local _, key = record_of(id, fields, 0)
    local member = key and parked_in(key)[id]
    return member and { name = 'parked', key = keys.parked, member = member } or nil
  end

  -- Whether a message had a later life: its body may be another one then, and its time is. Nothing says which.
  local function was_recycled(id)
    local row = sound_why(keys.why, id)
    return sound_counts(keys.counts, id)[CYCLES] > 0 or (row and row[9] or 0) > 0
  end

  -- The record of a message that has lost it, from the stream; nil: it is not there, or it is not this group's any
  -- more. Where no row speaks for `place`, it may be parked, too: that is where the group has put it.
  function record_in_stream(id, place)
    local fields = not was_recycled(id) and fields_in_stream(id)
    if not fields then
      return nil
    end
    for _, from in ipairs({ place, parked_as_in_stream(id) }) do
      local record, key = record_of(id, fields, due_without_body(id, from))
      if is_in_use(id, from, record, key) then
        return record
      end
    end
    return nil
  end
end
