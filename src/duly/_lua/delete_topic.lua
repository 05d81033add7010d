--[[
delete_topic -- the stream of a topic, and all that waits to enter it. Its groups are deleted before.

KEYS     call        string  last call of the stream of calls and its reply
         stream      stream  the entries
         msgs        hash    id -> record, of publishes that wait for their time
         dedup       hash    dedup value -> id
         dedup_ends  zset    dedup value -> end of its window
         dead        zset    id -> when it died, of those that could not enter
         why         hash    id -> reason
         wake        stream  the topic's bell
         meta        hash    clock, counters
         waiting*    zset    id -> due, of publishes that wait for their time
ARGV     sequence    of the call in its stream of calls
RETURNS  how many keys there were
KEEPS    I6 I9
]]
-- @include lib/call.lua
local CALL, FIRST_KEY = KEYS[1], 2
local sequence = ARGV[1]

local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end
local removed = redis.call('UNLINK', unpack(KEYS, FIRST_KEY))
return answer(CALL, sequence, removed)
