-- A group's script knows its topic by the keys that the loader names, and the group by its own keys.

-- @include lib/entry_ids.lua
-- @only freeing
-- @include lib/free.lua
-- @end

-- The topic's own store, which has the delayed publishes, as lib/let_in.lua takes it.
local function delayed_of_topic()
  return { dead = TOPIC_DEAD, why = TOPIC_WHY, msgs = TOPIC_MSGS, waiting = TOPIC_WAITING, meta = TOPIC_META }
end

-- `key` is one of the group's store.
local function group_of(key)
  return string.match(key, ':group:([^:]*):[^:]*$')
end

-- XACK for any ids. The server refuses all ids of a call if one of them cannot be the id of an entry, and another
-- program may have written such an id into the group's store. It is in no pending list, so it is left out.
local function ack_in_stream(group, ids)
  local acked = redis.pcall('XACK', STREAM, group, unpack(ids))
  if type(acked) == 'number' then
    return
  end
  local of_entries = {}
  for _, id in ipairs(ids) do
    if is_entry_id(id) then
      of_entries[#of_entries + 1] = id
    end
  end
  of_entries[1] = of_entries[1] or '0-1' -- it fails all the same if the stream is of another type
  redis.call('XACK', STREAM, group, unpack(of_entries))
end

-- Acks entries that the group has finished, or has in its own store. A topic that keeps nothing frees them.
local function ack_entries(group, ids)
  ack_in_stream(group, ids)
  -- @only freeing
  free_acked(STREAM)
  -- @end
end
