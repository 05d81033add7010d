-- What lib/audit_places.lua is for queues and groups, in the audit of a topic. Nothing is handed out from a topic's own
-- store: what is in it waits for its time, or is dead because it cannot be read.

-- @include lib/let_in.lua

local NO_KEYS_OF_TOPICS = { 'leased', 'leases', 'counts', 'expires', 'done', 'lanes', 'parked', 'schedules', 'slots' }
local ENTRIES_LOOKED_AT, BYTES_LOOKED_AT = 1000, 4194304

local store = {
  -- What is due enters from one place, whatever the record says.
  waits_under = function()
    return 0
  end,
  -- What enters the stream is read to its end.
  is_flawed = function(record)
    return not fields_if_sound(record)
  end,
  -- An entry has an id of its own.
  is_nameless = function()
    return false
  end,
}

-- A sound publish is never over here: it waits, or has entered.
local function place_when_over()
  return nil
end

local function check_keys_of_queues()
  for _, name in ipairs(NO_KEYS_OF_TOPICS) do
    if redis.call('EXISTS', keys[name]) == 1 then
      fault(name, 'a key that no topic has', function()
        redis.call('UNLINK', keys[name])
      end)
    end
  end
end

-- The bodies of entries that had waited, by the time of their publish: of the first ones from a moment on.
local bodies_since = {}
local function entered_since(ms)
  if not bodies_since[ms] then
    local bodies, largest = {}, math.max(tonumber(redis.call('HGET', keys.meta, 'largest') or 0), 1)
    local count = math.max(math.min(ENTRIES_LOOKED_AT, math.floor(BYTES_LOOKED_AT / largest)), 1)
    for _, entry in ipairs(redis.call('XRANGE', keys.stream, ms, '+', 'COUNT', count)) do
      local fields = entry[2]
      for at = 1, #fields, 2 do
        if fields[at] == 'sent' then
          bodies[fields[at + 1]] = fields[2]
        end
      end
    end
    bodies_since[ms] = bodies
  end
  return bodies_since[ms]
end

-- Whether the stream has the entry that a record became. No two publishes of a topic that waited have the same `sent`,
-- and none has entered before it was due.
local function has_entered(record)
  local fields = fields_if_sound(record)
  if not fields or due_of(record) > now then
    return false
  end
  local bodies = entered_since(string.format('%.0f', math.max(math.floor(due_of(record) / 1000), 0)))
  return bodies[string.format('%.0f', sent_of(record))] == fields[2]
end
