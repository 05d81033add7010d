-- Part of audit, for topics: the rules of a topic's own store, in place of lib/audit/store.lua. The store delivers
-- nothing. A delayed publish waits there until it is due, or is dead because its record cannot be read.
-- READS    msgs; the key that step_of() is given; now, cursor
-- CHANGES  nothing
-- GIVES    store, as lib/audit/store.lua does

-- @include lib/audit/entered.lua

local store
do
  store = {
    -- All delayed publishes wait under priority 0, regardless of the record.
    waits_under = function()
      return 0
    end,
    -- A publish needs its whole record to enter the stream, not only the header.
    is_flawed = function(record)
      return not fields_if_sound(record)
    end,
    -- Any id is valid: the entry gets its own id.
    has_bad_id = function()
      return false
    end,
  }

  -- A readable publish does not end in this store: it waits, or has entered the stream.
  function store.final_place()
    return nil
  end

  -- Returns the ids of a step whose SHA-1 is larger than `after`, in its order, which does not depend on other ids.
  local function ids_after(step, after)
    local ids, hashes, values = {}, {}, {}
    for at = 1, #step, 2 do
      local id = step[at]
      hashes[id], values[id] = redis.sha1hex(id), step[at + 1]
      if hashes[id] > after then
        ids[#ids + 1] = id
      end
    end
    table.sort(ids, function(one, other)
      return hashes[one] < hashes[other]
    end)
    return ids, hashes, values
  end

  -- As in lib/audit/store.lua, but only the ids whose entries this call could search for. If some are left, the cursor
  -- is that of the same step and the SHA-1 of the last id returned.
  function store.step_of(key, is_hash)
    local at, after = string.match(cursor, '^(%d+)/?(%x*)$')
    local step = redis.call(is_hash and 'HSCAN' or 'ZSCAN', key, at, 'COUNT', IDS_PER_CALL)
    local ids, hashes, values = ids_after(step[2], after)
    local judged = {}
    search_for_entries(ids)
    for _, id in ipairs(ids) do
      if is_search_pending(id) then
        return judged, at .. '/' .. hashes[judged[#judged - 1]]
      end
      judged[#judged + 1] = id
      judged[#judged + 1] = values[id]
    end
    return judged, step[1]
  end
end
