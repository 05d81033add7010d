--[[
retry -- give messages back after a failure, due after a delay.

KEYS     call, msgs, leased, leases, counts, why, expires, dead, lanes, parked, wake, meta, waiting*
ARGV     sequence  text
         digits    text
         settles*  rows    id, fence, delay: microseconds, error, traceback
DRAINS   leases
RETURNS  { position ... } of those whose lease was lost
KEEPS    I1 I2 I3 I5 I6 I7 I8
]]
-- @include lib/give_back.lua

return give_back('retried', function(held, _, counted, clock)
  local delay, error = tonumber(settles.delay(held.at)), settles.error(held.at)
  local history = history_of(keys.why, held.id)
  if error ~= '' then
    local attempt = counted[FAILURES] + counted[CRASHES] + 1
    add_error(history, { clock, attempt, consumer_of(held.lease), error, settles.traceback(held.at) })
  end
  add_event(history, clock, 'retry', held.lease, error)
  keep_history(keys.why, held.id, history)
  counted[FAILURES] = counted[FAILURES] + 1
  counted[DUE] = clock + delay
  return nil, counted[DUE]
end)
