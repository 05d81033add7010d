--[[
foreign_pending -- a page of what consumers of other programs hold in a group.

KEYS     leased, leases
ARGV     from   text    - the beginning | ( and an id: behind it
         limit  number  rows of the pending list to look at
RETURNS  { last, id, consumer, idle, deliveries ... }
         last     where the page ended, '' if it was the last; idle: milliseconds
KEEPS    writes nothing
]]
-- @include lib/group.lua
local rows = redis.pcall('XPENDING', STREAM, group_of(LEASED), from, '+', limit)
if rows.err then
  return { '' } -- there is no such group
end
local reply = { #rows == limit and rows[#rows][1] or '' }
for _, row in ipairs(rows) do
  if redis.call('HEXISTS', LEASES, row[1]) == 0 then
    for _, value in ipairs(row) do
      reply[#reply + 1] = value
    end
  end
end
return reply
