--[[
release -- untouched: back at once to its own place, no attempt spent.

KEYS     call      string  last call of the stream and its reply
         msgs      hash    id -> record
         leased    zset    id -> lease deadline
         leases    hash    id -> lease
         counts    hash    id -> what went wrong with it
         why       hash    id -> errors, reason
         expires   zset    id -> when a waiting message with a ttl is over
         dead      zset    id -> when it died
         wake      list    the wake token
         meta      hash    clock
         waiting*  zset    id -> due, one key a digit of `digits`
ARGV     sequence  of the call in its stream
         digits    priorities of `waiting*`
         settles*  id, fence
RETURNS  { position ... } of those whose lease was lost
KEEPS    I1 I2 I3 I5 I6 I8
]]
-- @include lib/give_back.lua

return give_back(2, 'released', function(_, record, counted)
  counted[RELEASES] = counted[RELEASES] + 1
  return nil, counted[DUE] > 0 and counted[DUE] or due_of(record)
end)
