--[[
progress -- store how far the work on deliveries is.

Progress takes the place of the result in `why`, which every end of a lease writes or removes. So other scripts need not
know of progress, and a delivery that reports none costs nothing.

KEYS     call, leases, counts, why, meta
ARGV     sequence  text
         settles*  rows    id, fence, fraction: from 0 to 1, text: '' for none
DRAINS   leases
RETURNS  { position ... } of those whose lease was lost
KEEPS    I5 I6 I9: only the holder writes it, and the end of the lease removes it.
]]
-- @include lib/clock.lua
-- @include lib/held_settles.lua
-- @include lib/counts.lua
-- @include lib/history.lua
local LEASE_FLAGS_AT = 13

local held, lost = held_settles(LEASES)
if #held == 0 then
  return lost
end

-- Writes a row of counts and the flag for it, because the end of a lease removes the rows of flagged messages only.
local function add_rows(id, lease)
  local head, tail = string.sub(lease.text, 1, LEASE_FLAGS_AT - 1), string.sub(lease.text, LEASE_FLAGS_AT + 1)
  redis.call('HSET', LEASES, id, head .. string.char(lease.flags + FLAG_HAS_COUNTS) .. tail)
  keep_counts(COUNTS, id, counts_of(COUNTS, id))
end

local now = tick(redis.call('HGET', META, 'clock'))
for _, each in ipairs(held) do
  local id, lease = each.id, each.lease
  if lease.flags < FLAG_HAS_COUNTS then
    add_rows(id, lease)
  end
  local written = { string.format('p%.0f %.0f', lease.fence, now), settles.fraction(each.at), settles.text(each.at) }
  keep_full_history(WHY, id, '', read_counts(nil), history_of(WHY, id), table.concat(written, ' '))
end
return answer(lost)
