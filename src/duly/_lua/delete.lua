--[[
delete -- the queue itself, with all that is in it and all that it counted.

KEYS     msgs        hash    id -> record
         leased      zset    id -> lease deadline
         leases      hash    id -> lease
         counts      hash    id -> what went wrong with it
         why         hash    id -> errors, reason
         expires     zset    id -> when a waiting message with a ttl is over
         dead        zset    id -> when it died
         done        zset    id -> when it was finished
         dedup       hash    dedup value -> id
         dedup_ends  zset    dedup value -> end of its window
         wake        list    the wake token
         meta        hash    clock, paused, priorities, large
         waiting*    zset    id -> due, every priority
RETURNS  how many keys there were
KEEPS    I9. Safe to repeat: there is nothing left to delete.
]]
return redis.call('UNLINK', unpack(KEYS))
