--[[
publish -- add entries to the stream of a topic, and keep it within its bounds.

Whoever waits for entries is woken by the stream itself. Publishes that waited for their time and are due enter before
these: the stream has the order of time.

KEYS     call, stream, msgs, dedup, dedup_ends, dead, why, meta, waiting
ARGV     sequence  text
         kept      row     count, age: microseconds, bytes; of the stream, -1 is no bound
         is_plain  flag    1: every entry is one text, its JSON body | 0: see entries
         entries*  rows    dedup: '' for none, window: microseconds, texts: how many; then these: field, value ...
RETURNS  { id ... } of the entries; where a dedup value was known, of the first that had it
KEEPS    I6
]]
-- @include lib/publishing.lua

local problem = not is_plain and problem_of_entries(entries.first, entries.last)
if problem then -- before anything is written
  return redis.error_reply('ERR ' .. problem)
end
-- A full server refuses this, which changes nothing, and with it the call: all that follows is written or nothing is.
redis.call('ZADD', keys.waiting, 'XX', 0, '')
local bounds = bounds_of(kept.count, kept.age, kept.bytes)
return answer(publish_entries(keys, entries.first, entries.last, is_plain, bounds))
