-- Where a group's script finds the topic: its keys are the last of KEYS, and the group's name is part of its own.

local TOPIC_KEYS = 7
local TOPIC_WAITING, TOPIC_WAKE = KEYS[#KEYS - 3], KEYS[#KEYS - 2]
local TOPIC_META, STREAM = KEYS[#KEYS - 1], KEYS[#KEYS]

-- What waits to enter the stream, as lib/let_in.lua has it.
local function delayed_of_topic()
  local dead, why, msgs = unpack(KEYS, #KEYS - 6, #KEYS - 4)
  return { dead = dead, why = why, msgs = msgs, waiting = TOPIC_WAITING, meta = TOPIC_META }
end

-- `key` is one of the group's store.
local function group_of(key)
  return string.match(key, ':group:([^:]*):[^:]*$')
end
