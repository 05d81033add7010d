-- Part of audit, for groups: bodies that the group's store has lost and the stream still has.
-- READS    stream and its groups; meta: `fed`; leased, leases, counts, why, lanes, parked; now
-- CHANGES  nothing
-- GIVES    is_unread(id); fields_in_stream(id); parked_as_in_stream(id), a place; record_in_stream(id, place)

local is_unread, fields_in_stream, parked_as_in_stream, record_in_stream
do
  -- @include lib/entry.lua
  -- @include lib/entry_ids.lua
  -- @include lib/stream_groups.lua

  -- Whether the group has not read an entry yet. Rows of such an entry come from another program. After a seek
  -- backwards the group has read more than the stream shows: `fed` has the last entry.
  function is_unread(id)
    local group, fed = find_group(STREAM, group_of(keys.leased)), redis.call('HGET', keys.meta, 'fed')
    if not is_entry_id(id) or not (group or fed) then
      return false
    end
    return not (group and not is_before(group.last, id)) and not (fed and not is_before(fed, id))
  end

  -- The due time of a message without a body: that of its place, or else when it was published.
  local function due_without_body(id, place)
    if place.name == 'parked' then
      local digits_at = string.find(place.member, '\0', 1, true) + 2
      return tonumber(string.sub(place.member, digits_at, digits_at + DUE_DIGITS - 1)) or 0
    elseif place.name == 'misplaced' and sound_counts(keys.counts, id)[DUE] == 0 then
      return math.min(place.score, now)
    end
    return math.min(sent_by(id), now)
  end

  -- Whether a row, a lane or `parked` shows that the group still works on an entry. It has none for an acked one.
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

  -- The fields of an entry; nil if the stream does not have it.
  function fields_in_stream(id)
    local entries = is_entry_id(id) and redis.pcall('XRANGE', STREAM, id, id) or {}
    return not entries.err and entries[1] and entries[1][2] or nil
  end

  -- The members of a lane in `parked` by id, read once per call, at most MOST_PARKED of them.
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

  -- The place in `parked` of a message without a readable body: the stream has its key. nil if it is not parked.
  function parked_as_in_stream(id)
    local fields = fields_in_stream(id)
    if not fields then
      return nil
    end
    local _, key = record_of(id, fields, 0)
    local member = key and parked_in(key)[id]
    return member and { name = 'parked', key = keys.parked, member = member } or nil
  end

  -- Whether a message was recycled. It may have got another body and another time, which no row has.
  local function was_recycled(id)
    local row = sound_why(keys.why, id)
    return sound_counts(keys.counts, id)[CYCLES] > 0 or (row and row[9] or 0) > 0
  end

  -- The record of a message that has lost its body, made from the stream; nil: the stream does not have it, or the
  -- group does not work on it any more. If no row confirms `place`, it may also be parked, and that is its true place.
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
