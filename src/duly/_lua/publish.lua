--[[
publish -- add entries to the stream of a topic, and keep it within its bounds.

Whoever waits for entries is woken by the stream itself. Publishes that waited for their time and are due enter before
these: the stream has the order of time.

KEYS     call        string  last call of the stream of calls and its reply
         stream      stream  the entries
         msgs        hash    id -> record, of publishes that wait for their time
         dedup       hash    dedup value -> id
         dedup_ends  zset    dedup value -> end of its window
         dead        zset    id -> when it died, of those that could not enter
         why         hash    id -> reason
         meta        hash    clock, largest, counters
         waiting*    zset    id -> due, of publishes that wait for their time
ARGV     sequence    of the call in its stream of calls
         keep_count  entries kept; -1: any number
         keep_age    microseconds they are kept; -1: for ever
         keep_bytes  bytes the stream may take; -1: any number
         plain       1: every entry is one text, its JSON body | 0: see entries
         entries*    dedup value or '', window in microseconds, number of texts, then so many: field, value ...
RETURNS  { id ... } of the entries; where a dedup value was known, of the first that had it
KEEPS    I6
]]
-- @include lib/call.lua
-- @include lib/publishing.lua
local CALL, FIRST_KEEP, FIRST_ENTRY = KEYS[1], 2, 6
local topic, sequence, is_plain = publishing_keys(2), ARGV[1], ARGV[5] == '1'

local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end

local problem = not is_plain and problem_of_entries(FIRST_ENTRY, #ARGV)
if problem then -- before anything is written
  return redis.error_reply('ERR ' .. problem)
end
-- A full server refuses this, which changes nothing, and with it the call: all that follows is written or nothing is.
redis.call('ZADD', topic.waiting, 'XX', 0, '')
return answer(CALL, sequence, publish_entries(topic, FIRST_ENTRY, #ARGV, is_plain, bounds_of_stream(FIRST_KEEP)))
