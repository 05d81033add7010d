-- What lib/audit/store.lua is for queues and groups, in the audit of a topic. Nothing is handed out from a topic's own
-- store: what is in it waits for its time, or is dead because it cannot be read.
-- READS    msgs; in a step the key that it goes through; now, cursor
-- CHANGES  nothing
-- GIVES    store, as lib/audit/store.lua does

-- @include lib/audit/entered.lua

local store
do
  store = {
    -- What is due enters from one place, whatever the record says.
    waits_under = function()
      return 0
    end,
    -- What enters the stream is read to its end.
    is_flawed = function(record)
      return not fields_if_sound(record)
    end,
    -- An entry has an id of its own.
    has_bad_id = function()
      return false
    end,
  }

  -- A sound publish is never over here: it waits, or has entered.
  function store.final_place()
    return nil
  end

  -- The ids of a step in an order that does not change while they do, but for those that come before `after`.
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

  -- The ids of one step of a key that can be judged in one call, each with its value, and where the next call begins:
  -- behind the step, or again at its cursor, with the last id that was judged.
  function store.step_of(key, is_hash)
    local at, after = string.match(cursor, '^(%d+)/?(%x*)$')
    local step = redis.call(is_hash and 'HSCAN' or 'ZSCAN', key, at, 'COUNT', IDS_A_CALL)
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
