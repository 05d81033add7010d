--[[
defer -- not now: back to those that wait, due after its delay, no attempt spent.

KEYS     call      string  last call of the stream and its reply
         msgs      hash    id -> record
         leased    zset    id -> lease deadline
         leases    hash    id -> lease
         counts    hash    id -> what went wrong with it
         why       hash    id -> errors, reason, timeline, result
         expires   zset    id -> when a waiting message with a ttl is over
         dead      zset    id -> when it died
         lanes     hash    key -> the id that its lane belongs to
         parked    zset    what is due and behind its lane's id
         wake      list    the wake token
         meta      hash    clock
         waiting*  zset    id -> due, every priority
ARGV     sequence  of the call in its stream
         digits    priorities of `waiting*`
         settles*  id, fence, delay in microseconds, reason ('' for none)
RETURNS  { position ... } of those whose lease was lost
KEEPS    I1 I2 I3 I5 I6 I7 I8
]]
-- @include lib/give_back.lua

return give_back(4, 'deferred', function(held, _, counted, clock, keys)
  local past = past_of(keys.why, held.id)
  add_event(past, clock, 'defer', held.lease, ARGV[held.at + 3])
  keep_past(keys.why, held.id, past)
  counted[DEFERS] = counted[DEFERS] + 1
  counted[DUE] = clock + tonumber(ARGV[held.at + 2])
  return nil, counted[DUE]
end)
