-- The topic and the group of a group's script. The loader names the keys of the topic. The name of the group is part of
-- its keys.

-- @include lib/entry_ids.lua
-- @only freeing
-- @include lib/acked_entries.lua
-- @end

-- Returns the keys of the topic's own store of delayed publishes, for lib/delayed_publishes.lua.
local function delayed_of_topic()
  return { dead = TOPIC_DEAD, why = TOPIC_WHY, msgs = TOPIC_MSGS, waiting = TOPIC_WAITING, meta = TOPIC_META }
end

-- Returns the name of the group that a key belongs to.
local function group_of(key)
  return string.match(key, ':group:([^:]*):[^:]*$')
end

-- XACKs any ids. The server refuses all ids of a call if one of them cannot be the id of an entry. Another program may
-- have written such an id into the group's store. No pending list has it, so it is left out.
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
  of_entries[1] = of_entries[1] or '0-1' -- so that it fails if the stream has another type
  redis.call('XACK', STREAM, group, unpack(of_entries))
end

-- Acks entries that the group has finished, or has in its own store. A topic without retention frees them.
local function ack_entries(group, ids)
  ack_in_stream(group, ids)
  -- @only freeing
  free_acked(STREAM)
  -- @end
end
