--[[
workers -- list the workers that send heartbeats, the latest heartbeat first.

KEYS     workers, beats
RETURNS  { now, consumer, beat, info ... }, at most 1,000 of them; '' if absent
KEEPS    writes nothing
]]
-- @include lib/clock.lua
local SHOWN = 1000

local now = tick(false)
local reply = { now }
local rows = redis.call('ZREVRANGE', BEATS, 0, SHOWN - 1, 'WITHSCORES')
for i = 1, #rows, 2 do
  reply[#reply + 1] = rows[i]
  reply[#reply + 1] = tonumber(rows[i + 1])
  reply[#reply + 1] = redis.call('HGET', WORKERS, rows[i]) or ''
end
return reply
