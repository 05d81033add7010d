-- Part of audit: the rules of a queue's or group's store. A topic has others: lib/audit/delayed_store.lua.
-- READS    why; the key that step_of() is given; now, cursor
-- CHANGES  nothing
-- GIVES    store: waits_under(record), is_flawed(record), has_bad_id(id), final_place(id), step_of(key, is_hash)

local store = {
  -- The priority under which a readable message waits.
  waits_under = priority_of,
  -- Whether a record cannot be delivered.
  is_flawed = flaw_of,
  -- Whether clients could not name this id in a call.
  has_bad_id = function(id)
    return not is_text(id) or id == '' or id == ENCODING_GUARD
  end,
}

-- Returns the place of a message that has ended, and when, by its row in `why`; nil: by its row it has not ended.
function store.final_place(id)
  local row = sound_why(keys.why, id)
  local last = row and row[8][#row[8]]
  if row and row[1] ~= '' then
    return 'dead', last and last[1] or now
  elseif last and last[2] == 'ack' then
    return 'done', last[1]
  end
  return nil
end

-- Scans one step of a key. Returns { id, value ... } and the cursor of the next step.
function store.step_of(key, is_hash)
  local step = redis.call(is_hash and 'HSCAN' or 'ZSCAN', key, cursor, 'COUNT', IDS_PER_CALL)
  return step[2], step[1]
end
