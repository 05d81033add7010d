-- Where a group's script finds the topic: its keys are the last of KEYS, and the group's name is part of its own.

local TOPIC_KEYS = 5
local TOPIC_MSGS, TOPIC_WAITING, TOPIC_WAKE = KEYS[#KEYS - 4], KEYS[#KEYS - 3], KEYS[#KEYS - 2]
local TOPIC_META, STREAM = KEYS[#KEYS - 1], KEYS[#KEYS]

-- `key` is one of the group's store.
local function group_of(key)
  return string.match(key, ':group:([^:]*):[^:]*$')
end
