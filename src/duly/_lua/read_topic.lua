--[[
read_topic -- read entries without a group.

Delayed publishes that are due enter the stream first, if the caller has permission to write. A repeat does no harm, so
the script keeps no call record.

KEYS     stream, msgs, dead, why, wake, meta, waiting
ARGV     from   text    - the beginning | ( and an id: after it | an id: from it on | $ only new entries
         limit  number  entries at the most
RETURNS  { next, { position, bell }, id, fields, id, fields ... }
         next      microseconds until the next delayed publish is due; -1: there is none
         position  last id of the stream, and of the bell; the caller waits for later ones
         fields    { field, value ... }
KEEPS    I6: a repeat returns the same entries
]]
-- @include lib/clock.lua
-- @include lib/delayed_publishes.lua
-- @include lib/bell.lua
local BYTES_PER_CALL, ASKED_AT_FIRST = 4194304, 10

if redis.call('ZCARD', keys.waiting) > 0 then
  redis.pcall('HDEL', keys.msgs, '') -- as lib/drain.lua, but a user who may only read gets no error
end
local next_us = add_due_publishes(keys, STREAM) or -1
local last = redis.call('XREVRANGE', STREAM, '+', '-', 'COUNT', 1)[1]
local reply = { next_us, {} }

-- The size of entries is not known before they are read: ask for few at first, then for more while they are small.
local largest, size, step = math.max(tonumber(redis.call('HGET', keys.meta, 'largest') or 0), 1), 0, ASKED_AT_FIRST
local function entries_to_ask_for(left)
  return math.min(left, step, math.max(math.floor((BYTES_PER_CALL - size) / largest), 1))
end

local function add(id, fields)
  reply[#reply + 1] = id
  reply[#reply + 1] = fields
  local length = 0
  for _, text in ipairs(fields) do
    length = length + #text
  end
  size, largest = size + length, math.max(largest, length)
end

local left = from ~= '$' and limit or 0
while left > 0 and (size == 0 or size + largest <= BYTES_PER_CALL) do
  local count = entries_to_ask_for(left)
  local found = redis.call('XRANGE', STREAM, from, '+', 'COUNT', count)
  for _, entry in ipairs(found) do
    add(entry[1], entry[2])
  end
  left, step = #found < count and 0 or left - count, 2 * step
  from = #found > 0 and '(' .. found[#found][1] or from
end
reply[2] = { last and last[1] or '0-0', last_ring(WAKE) }
return reply
