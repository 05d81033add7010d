--[[
release -- give messages back with their due time. Releasing does not count as an attempt.

KEYS     call, msgs, leased, leases, counts, why, expires, dead, lanes, parked, wake, meta, waiting*
ARGV     sequence  text
         digits    text
         settles*  rows    id, fence
DRAINS   leases
RETURNS  { position ... } of those whose lease was lost
KEEPS    I1 I2 I3 I5 I6 I7 I8
]]
-- @include lib/give_back.lua

return give_back('released', function(held, record, counted, clock)
  local history = history_of(keys.why, held.id)
  add_event(history, clock, 'release', held.lease)
  keep_history(keys.why, held.id, history)
  counted[RELEASES] = counted[RELEASES] + 1
  return nil, counted[DUE] > 0 and counted[DUE] or due_of(record)
end)
