--[[
defer -- give messages back, due after a delay. Deferring does not count as an attempt.

KEYS     call, msgs, leased, leases, counts, why, expires, dead, lanes, parked, wake, meta, waiting*
ARGV     sequence  text
         digits    text
         settles*  rows    id, fence, delay: microseconds, reason: '' for none
DRAINS   leases
RETURNS  { position ... } of those whose lease was lost
KEEPS    I1 I2 I3 I5 I6 I7 I8
]]
-- @include lib/give_back.lua

return give_back('deferred', function(held, _, counted, clock)
  local history = history_of(keys.why, held.id)
  add_event(history, clock, 'defer', held.lease, settles.reason(held.at))
  keep_history(keys.why, held.id, history)
  counted[DEFERS] = counted[DEFERS] + 1
  counted[DUE] = clock + tonumber(settles.delay(held.at))
  return nil, counted[DUE]
end)
