--[[
publish -- add entries to the stream of a topic, and keep it within its bounds.

The stream itself wakes consumers. Delayed publishes that are due enter first, so that the stream is in order of time.

KEYS     call, stream, msgs, dedup, dedup_ends, dead, why, meta, waiting
ARGV     sequence  text
         kept      row     count, age: microseconds, bytes; of the stream, -1: no bound
         is_plain  flag    1: every entry is one text, its JSON body | 0: see entries
         entries*  rows    dedup: '' for none, window: microseconds, texts: their number; followed by field, value ...
RETURNS  { id ... } of the entries; for a duplicate, the id of the first entry with its dedup value
KEEPS    I6
]]
-- @include lib/publications.lua

local problem = not is_plain and problem_of_entries(entries.first, entries.last)
if problem then -- before anything is written
  return redis.error_reply('ERR ' .. problem)
end
-- This changes nothing. A full server refuses it, and with it the whole call, so that nothing is written in part.
redis.call('ZADD', keys.waiting, 'XX', 0, '')
local bounds = bounds_of(kept.count, kept.age, kept.bytes)
return answer(publish_entries(keys, entries.first, entries.last, is_plain, bounds))
