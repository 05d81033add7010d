--[[
commit -- finish a message, send others and change keys of the user, in one step or not at all.

KEYS     call        string  last call of the stream and its reply
         msgs        hash    id -> record
         leased      zset    id -> lease deadline
         leases      hash    id -> lease
         counts      hash    id -> what went wrong with it
         why         hash    id -> errors, reason
         done        zset    id -> when it was finished
         wake        list    the wake token
         meta        hash    clock
         others*     for each target the keys of send_checked after `call`; then the keys of the user
ARGV     sequence    of the call in its stream
         keeps       1: finished messages are kept in `done` | 0: they are gone
         keep_count  finished messages kept; -1: any number
         keep_age    microseconds they are kept; -1: for ever
         keep_bytes  bytes of them kept; -1: any number
         digits      priorities of each target's `waiting*`
         id          of the message
         fence       that proves the lease
         targets     how many queues messages are sent to
         effects     how many effects there are
         rest*       for each target: 1: it is this queue | 0, max_length, max_bytes, on_full (all or drop), number of
                     messages, then id, part, when of each; then for each effect: which of the user's keys (1, 2 ...),
                     command, number of arguments, the arguments after the key
RETURNS  { 0 }                            the lease was lost
         { 1, position, outcome, id ... } done; outcomes of sends as those of send_checked
         { 2, target }                    that queue (1, 2 ...) has no room
         { 3, effect, why }               that effect (1, 2 ...) cannot be carried out
KEEPS    I1 I2 I5 I6 I9: guard, then write; but for 1 nothing is changed.
]]
-- @include lib/call.lua
-- @include lib/drain.lua
-- @include lib/lease.lua
-- @include lib/trim.lua
-- @include lib/sending.lua
-- @include lib/effects.lua
-- @include lib/types.lua
local LOST, DONE, NO_ROOM, IMPOSSIBLE = 0, 1, 2, 3
local FIRST_TARGET_KEY, FIRST_KEEP, FIRST_REST, TARGET_HEAD = 10, 3, 11, 5
local CALL, sequence, keeps, digits = KEYS[1], ARGV[1], ARGV[2] == '1', ARGV[6]
local id, fence, target_count, effect_count = ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local keys = {
  msgs = KEYS[2],
  leased = KEYS[3],
  leases = KEYS[4],
  counts = KEYS[5],
  why = KEYS[6],
  done = KEYS[7],
  wake = KEYS[8],
  meta = KEYS[9],
}

local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end

local stored = redis.call('HGET', keys.leases, id)
local lease = stored and read_lease(stored)
if not lease or lease.fence ~= fence then
  return { LOST }
end

-- Guard. Plans of sends, then effects; nothing is written.
local wrong = mistyped(keys)
local plans, own_plan, at, first_key = {}, nil, FIRST_REST, FIRST_TARGET_KEY
for i = 1, target_count do
  local target = sending_keys(first_key, digits)
  wrong = wrong or mistyped(target)
  if wrong then
    break
  end
  local is_own, first = ARGV[at] == '1', at + TARGET_HEAD
  local last = first + tonumber(ARGV[at + 4]) * MESSAGE_STRIDE - 1
  plans[i] = plan_sends(target, first, last, bounds_from(at + 1), is_own and { id = id, size = lease.size })
  own_plan = is_own and plans[i] or own_plan
  at, first_key = last + 1, first_key + FIXED_SENDING_KEYS + #digits
end
if wrong then
  return redis.error_reply('WRONGTYPE the key ' .. wrong .. ' of a queue was overwritten')
end

local effects = effects_from(at, effect_count, first_key - 1)
if target_count == 0 and bring_nothing_in(effects) then
  let_a_full_server_drain(keys.leases)
end
for i, plan in ipairs(plans) do
  if plan.is_refused then
    return answer(CALL, sequence, { NO_ROOM, i })
  end
end
local views = {}
for i, effect in ipairs(effects) do
  local problem = problem_of(views, effect)
  if problem then
    return answer(CALL, sequence, { IMPOSSIBLE, i, problem })
  end
end

-- Ends the message itself, as `ack` does.
local function finish_one(now)
  remove_leased(keys.leased, { id })
  redis.call('HDEL', keys.leases, id)
  redis.call('HDEL', keys.counts, id)
  redis.call('HDEL', keys.why, id)
  local kept = keeps and redis.call('HSTRLEN', keys.msgs, id) or 0
  if kept > 0 then -- a body that is lost is not kept
    redis.call('ZADD', keys.done, now, id)
    redis.call('HINCRBY', keys.meta, 'done_bytes', kept)
  else
    redis.call('HDEL', keys.msgs, id)
  end
  if keeps then
    trim(keys, keys.done, 'done_bytes', 'done_trimmed', keep_from(FIRST_KEEP), now, 1)
  end
  redis.call('HINCRBY', keys.meta, 'acked', 1)
  redis.call('HINCRBY', keys.meta, 'bytes', 0 - lease.size)
  take_token_if_empty(keys.wake, keys.msgs)
end

-- Writes. The first is one that a full server refuses, unless the call brings nothing in. The message is
-- finished before its queue is sent to: its id may be used again.
local now = own_plan and own_plan.now or tick(redis.call('HGET', keys.meta, 'clock'))
remember(keys.meta, now)
for _, effect in ipairs(effects) do
  redis.call(effect.name, effect.key, unpack(effect.args))
end
finish_one(now)
local reply, before = { DONE }, 0
for _, plan in ipairs(plans) do
  carry_out(plan)
  add_outcomes(reply, plan, before)
  before = before + plan.count
end
return answer(CALL, sequence, reply)
