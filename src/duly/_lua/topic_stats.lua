--[[
topic_stats -- sizes, counters and groups of a topic, at one moment.

KEYS     stream    stream  the entries
         meta      hash    clock, counters, names of groups
         waiting*  zset    id -> due, of publishes that wait for their time
ARGV     digits    priorities of `waiting*`
RETURNS  { now, length, bytes, delayed, first, last, groups, name, value ... }
         bytes     of the stream, as the server estimates them
         first     id of the first entry, or ''; last: of the last
         groups    { name, pending, consumers, last, unread, missed ... }
KEEPS    writes nothing
]]
-- @include lib/clock.lua
-- @include lib/groups_of_stream.lua
-- @include lib/unread.lua
local STREAM, META, WAITING = KEYS[1], KEYS[2], KEYS[3]

-- One that somebody has overwritten has nothing: whoever looks must still find the topic, and its groups, to mend it.
local is_stream = redis.call('TYPE', STREAM).ok == 'stream'

local function id_at(command, from, to)
  local found = is_stream and redis.call(command, STREAM, from, to, 'COUNT', 1)[1]
  return found and found[1] or ''
end

local now = tick(redis.call('HGET', META, 'clock'))
local groups = {}
for _, group in ipairs(groups_of(STREAM)) do
  for _, value in ipairs({
    group.name,
    group.pending,
    group.consumers,
    group.last,
    unread_of(STREAM, group, META),
    tonumber(redis.call('HGET', META, 'missed:' .. group.name) or 0),
  }) do
    groups[#groups + 1] = value
  end
end
local reply = {
  now,
  is_stream and redis.call('XLEN', STREAM) or 0,
  redis.call('MEMORY', 'USAGE', STREAM) or 0,
  redis.call('ZCARD', WAITING),
  id_at('XRANGE', '-', '+'),
  id_at('XREVRANGE', '+', '-'),
  groups,
}
for _, value in ipairs(redis.call('HGETALL', META)) do
  reply[#reply + 1] = value
end
return reply
