--[[
foreign_pending -- list a page of the entries that consumers of other programs hold in a group.

KEYS     leased, leases
ARGV     from   text    - the beginning | ( and an id: after it
         limit  number  rows of the pending list to read
RETURNS  { last, id, consumer, idle, deliveries ... }
         last     last id of the page, '' if no page follows; idle: milliseconds
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
