--[[
topic_stats -- return sizes, counters and groups of a topic at one moment.

KEYS     stream, meta, waiting
ARGV     digits  text
RETURNS  { now, length, bytes, delayed, first, last, groups, name, value ... }
         bytes     of the stream, estimated by the server; 0 if it refuses MEMORY USAGE
         first     id of the first entry, or ''; last: of the last
         groups    { name, pending, consumers, last, unread, missed ... }
KEEPS    writes nothing
]]
-- @include lib/clock.lua
-- @include lib/stream_groups.lua
-- @include lib/unread_entries.lua

-- A key that another program has overwritten counts as empty, and a field that is not a number as 0. So a damaged topic
-- and its groups can still be found and repaired.
local function is_of_type(key, wanted)
  return redis.call('TYPE', key).ok == wanted
end

local is_stream = is_of_type(STREAM, 'stream')
local fields = is_of_type(META, 'hash') and redis.call('HGETALL', META) or {}
local meta = {}
for at = 1, #fields, 2 do
  meta[fields[at]] = fields[at + 1]
end

local function unread_if_known(group)
  local is_known, unread = pcall(unread_of, STREAM, group, META)
  return is_known and unread or 0
end

local function id_at(command, from, to)
  local found = is_stream and redis.call(command, STREAM, from, to, 'COUNT', 1)[1]
  return found and found[1] or ''
end

-- Some providers hide MEMORY. The other numbers are known without it.
local used = redis.pcall('MEMORY', 'USAGE', STREAM)
local now = tick(tonumber(meta.clock))
local groups = {}
for _, group in ipairs(groups_of(STREAM)) do
  for _, value in ipairs({
    group.name,
    group.pending,
    group.consumers,
    group.last,
    unread_if_known(group),
    tonumber(meta['missed:' .. group.name]) or 0,
  }) do
    groups[#groups + 1] = value
  end
end
local reply = {
  now,
  is_stream and redis.call('XLEN', STREAM) or 0,
  type(used) == 'number' and used or 0,
  is_of_type(WAITING, 'zset') and redis.call('ZCARD', WAITING) or 0,
  id_at('XRANGE', '-', '+'),
  id_at('XREVRANGE', '+', '-'),
  groups,
}
for _, value in ipairs(fields) do
  reply[#reply + 1] = value
end
return reply
