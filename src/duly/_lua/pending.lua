--[[
pending -- return a page of leased messages: id, deadline, lease, counts.

KEYS     leased, leases, counts, meta
ARGV     offset  number  leases to skip
         limit   number  leases at the most
RETURNS  { now, id, deadline, lease, counts ... }; '' if absent
KEEPS    writes nothing
]]
-- @include lib/clock.lua
-- @include lib/leased.lua
local now = tick(redis.call('HGET', META, 'clock'))
local reply = { now }
local last = math.min(offset + limit, count_leased(LEASED)) - 1
local rows = last >= offset and redis.call('ZRANGE', LEASED, offset, last, 'WITHSCORES') or {}
for i = 1, #rows, 2 do
  reply[#reply + 1] = rows[i]
  reply[#reply + 1] = tonumber(rows[i + 1])
  reply[#reply + 1] = redis.call('HGET', LEASES, rows[i]) or ''
  reply[#reply + 1] = redis.call('HGET', COUNTS, rows[i]) or ''
end
return reply
