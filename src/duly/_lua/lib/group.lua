-- A group's script knows its topic by the keys that the loader names, and the group by its own keys.

-- What waits to enter the stream, as lib/let_in.lua has it.
local function delayed_of_topic()
  return { dead = TOPIC_DEAD, why = TOPIC_WHY, msgs = TOPIC_MSGS, waiting = TOPIC_WAITING, meta = TOPIC_META }
end

-- `key` is one of the group's store.
local function group_of(key)
  return string.match(key, ':group:([^:]*):[^:]*$')
end
