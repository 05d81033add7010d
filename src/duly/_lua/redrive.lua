--[[
redrive -- dead letters back to work, oldest first, each to its own place, as new.

KEYS     call      string  last call of the stream and its reply
         msgs      hash    id -> record
         leases    hash    id -> lease
         expires   zset    id -> when a waiting message with a ttl is over
         why       hash    id -> errors, reason
         dead      zset    id -> when it died
         wake      list    the wake token
         meta      hash    clock, paused, priorities, large
         waiting*  zset    id -> due, every priority
ARGV     sequence  of the call in its stream
         digits    priorities of `waiting*`
         limit     messages at the most, up to 1,000
RETURNS  { redriven, left }
KEEPS    I1 I2 I6: counts and errors begin anew; a dead letter whose body was lost stays.
]]
-- @include lib/call.lua
-- @include lib/clock.lua
-- @include lib/drain.lua
-- @include lib/record.lua
-- @include lib/waiting.lua
-- @include lib/wake.lua
local sequence, digits, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local keys = {
  call = KEYS[1],
  msgs = KEYS[2],
  leases = KEYS[3],
  expires = KEYS[4],
  why = KEYS[5],
  dead = KEYS[6],
  wake = KEYS[7],
  meta = KEYS[8],
  waiting = waiting_by_priority(9, digits),
}

let_a_full_server_drain(keys.leases)
local repeated = answered(keys.call, sequence)
if repeated then
  return repeated
end

local now = tick(redis.call('HGET', keys.meta, 'clock'))
local redriven, size = 0, 0

local function redrive(id, record)
  local due = due_of(record)
  if has(flags_of(record), FLAG_TTL) then
    -- Its ttl may long be over: it counts from now.
    due = now
    record = stamped(sent_of(record), due, part_of(record))
    redis.call('HSET', keys.msgs, id, record)
    redis.call('ZADD', keys.expires, expiry_of(record), id)
  end
  redis.call('ZREM', keys.dead, id)
  redis.call('HDEL', keys.why, id)
  redis.call('ZADD', keys.waiting[priority_of(record)], due, id)
  redriven, size = redriven + 1, size + #record
end

-- Letters whose record is flawed stay, in front of the others: look past a bounded number of them.
for _, id in ipairs(redis.call('ZRANGE', keys.dead, 0, limit + 999)) do
  local record = redriven < limit and redis.call('HGET', keys.msgs, id)
  if not flaw_of(record) then
    redrive(id, record)
  end
end
local left = redis.call('ZCARD', keys.dead)
if redriven == 0 then
  return answer(keys.call, sequence, { 0, left }) -- or a late copy would redrive what dies meanwhile
end
redis.call('HINCRBY', keys.meta, 'redriven', redriven)
redis.call('HINCRBY', keys.meta, 'bytes', size)
redis.call('HINCRBY', keys.meta, 'dead_bytes', 0 - size)
remember(keys.meta, now)
leave_token(keys.wake)
return answer(keys.call, sequence, { redriven, left })
