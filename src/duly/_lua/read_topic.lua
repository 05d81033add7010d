--[[
read_topic -- look at entries without a group.

Publishes that waited for their time and are due enter the stream first. It may simply be done again, so it keeps no
call record.

KEYS     stream    stream  the entries
         msgs      hash    id -> record, of publishes that wait for their time
         wake      stream  the topic's bell
         meta      hash    clock, largest
         waiting*  zset    id -> due, of publishes that wait for their time
ARGV     from      - the beginning | ( and an id: behind it | an id: from it on | $ only what comes
         limit     entries at the most
RETURNS  { next, { position, bell }, id, fields, id, fields ... }
         next      microseconds until the next entry enters; -1: none waits
         position  the ids behind which to wait for entries, and for the bell
         fields    { field, value ... }
KEEPS    I6: reading again gives the same
]]
-- @include lib/clock.lua
-- @include lib/drain.lua
-- @include lib/let_in.lua
-- @include lib/bell.lua
local STREAM, WAKE = KEYS[1], KEYS[3]
local topic = { msgs = KEYS[2], meta = KEYS[4], waiting = KEYS[5] }
local BYTES_A_CALL = 4194304
local from, limit = ARGV[1], tonumber(ARGV[2])

let_a_full_server_drain(topic.msgs)
local next_us = let_in(topic, STREAM) or -1
local last = redis.call('XREVRANGE', STREAM, '+', '-', 'COUNT', 1)[1]
local largest = math.max(tonumber(redis.call('HGET', topic.meta, 'largest') or 0), 1)
local reply, count = { next_us, {} }, math.max(math.min(limit, math.floor(BYTES_A_CALL / largest)), 1)
local found = from ~= '$' and redis.call('XRANGE', STREAM, from, '+', 'COUNT', count) or {}
for _, entry in ipairs(found) do
  reply[#reply + 1] = entry[1]
  reply[#reply + 1] = entry[2]
end
reply[2] = { last and last[1] or '0-0', last_ring(WAKE) }
return reply
