--[[
stats -- return sizes and counters at one moment.

KEYS     msgs, leased, why, parked, dead, done, meta, history, waiting*
ARGV     digits  text
         ring    text    m, t, h: with the points of this ring of the history | '': only with sums of times
RETURNS  { now, ready, delayed, leased, parked, dead, done, oldest, next, deadline, paused, lateness, name, value ... }
         oldest    due time of the oldest ready message, or time of the first unread entry, or -1; next: due time of the
                   next delayed message, or -1
         name      a field of meta, or history: and a field of the history, of a queue that has a point; dead_why_bytes
                   and done_why_bytes, unless they are unknown
         deadline  of the first lease, or -1; paused: who paused the queue, or ''
KEEPS    writes nothing
]]
-- @include lib/clock.lua
-- @include lib/leased.lua
-- @include lib/row_bytes.lua

local meta = redis.call('HMGET', keys.meta, 'clock', 'paused', 'lateness', 'point')
local now = tick(meta[1])
local bound = string.format('%.0f', now)
local ready, delayed, oldest, next_due = 0, 0, -1, -1

local function earlier(a, b)
  return (a < 0 or b < a) and b or a
end

for _, waiting in pairs(keys.waiting) do
  local due = redis.call('ZCOUNT', waiting, '-inf', bound)
  local rest = redis.call('ZCARD', waiting) - due
  if due > 0 then
    oldest = earlier(oldest, tonumber(redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')[2]))
  end
  if rest > 0 then
    next_due = earlier(next_due, tonumber(redis.call('ZRANGE', waiting, due, due, 'WITHSCORES')[2]))
  end
  ready, delayed = ready + due, delayed + rest
end
local first_deadline = first_deadline_of(keys.leased)

local reply = {
  now,
  ready,
  delayed,
  count_leased(keys.leased),
  redis.call('ZCARD', keys.parked),
  redis.call('ZCARD', keys.dead),
  redis.call('ZCARD', keys.done),
  oldest,
  next_due,
  first_deadline < math.huge and first_deadline or -1,
  meta[2] or '',
  tonumber(meta[3] or 0),
}
for _, value in ipairs(redis.call('HGETALL', keys.meta)) do
  reply[#reply + 1] = value
end
for _, place in ipairs({ 'dead', 'done' }) do
  local bytes = row_bytes(keys, place, 0)
  if bytes then
    reply[#reply + 1] = place .. '_why_bytes'
    reply[#reply + 1] = tostring(bytes)
  end
end

local function add_history(field, value)
  reply[#reply + 1] = 'history:' .. field
  reply[#reply + 1] = value
end

-- Without a point, the history is that of a queue which a version without history has deleted. A key that another
-- program has overwritten counts as empty.
local RING_SIZES = { m = 60, t = 144, h = 168 } -- as in lib/points.lua
if meta[4] then
  local places = { 'lateness', 'handling' }
  for at = 0, (RING_SIZES[ring] or 0) - 1 do
    places[#places + 1] = ring .. at
  end
  local found = redis.pcall('HMGET', keys.history, unpack(places))
  for i, place in ipairs(places) do
    if found[i] then
      add_history(place, found[i])
    end
  end
end
-- @only group
-- @include lib/stream_groups.lua
-- @include lib/unread_entries.lua
local GROUP = group_of(keys.leased)
local group = find_group(STREAM, GROUP)
local unread = group and unread_of(STREAM, group, TOPIC_META) or 0
local first_unread = unread > 0 and redis.call('XRANGE', STREAM, '(' .. group.last, '+', 'COUNT', 1)[1]
if first_unread then
  reply[8] = earlier(oldest, ms_of(first_unread[1]) * 1000)
end
reply[2] = reply[2] + unread
reply[#reply + 1] = 'unread'
reply[#reply + 1] = tostring(unread)
reply[#reply + 1] = 'missed'
reply[#reply + 1] = redis.call('HGET', TOPIC_META, 'missed:' .. GROUP) or '0'
-- @end
return reply
