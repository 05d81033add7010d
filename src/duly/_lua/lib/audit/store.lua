-- Part of audit: what a queue or group takes for right. For a topic's own store: lib/audit/delayed_store.lua.
-- READS    why; in a step the key that it goes through; now, cursor
-- CHANGES  nothing
-- GIVES    store: waits_under(record), is_flawed(record), has_bad_id(id), final_place(id), step_of(key, is_hash)

local store = {
  -- Under which priority a sound message waits.
  waits_under = priority_of,
  -- Whether a record cannot be delivered.
  is_flawed = flaw_of,
  -- Whether clients could not name a message.
  has_bad_id = function(id)
    return not is_text(id) or id == '' or id == PILLAR
  end,
}

-- Where a message belongs that is over, as its past tells, and since when; nil: it lives, as far as anybody knows.
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

-- The ids of one step of a key, each with its value, and the cursor of the next.
function store.step_of(key, is_hash)
  local step = redis.call(is_hash and 'HSCAN' or 'ZSCAN', key, cursor, 'COUNT', IDS_A_CALL)
  return step[2], step[1]
end
