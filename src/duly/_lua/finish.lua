--[[
finish -- finish messages that the caller holds, and that have a key or are in a queue that keeps them.

KEYS     call, msgs, leased, leases, counts, why, done, lanes, parked, wake, meta, awaited, ends, waiting*
ARGV     sequence   text
         digits     text
         keeps      flag    1: finished messages are kept in `done` | 0: they are removed
         done_kept  row     count, age: microseconds, bytes; of finished messages, -1: no bound
         results    text    of the settles, as a MessagePack array, '' for none; not read unless messages are kept
         settles*   rows    id, fence
DRAINS   leases
RETURNS  { position ... } of those whose lease was lost
KEEPS    I1 I2 I5 I6 I7 I9: a stale fence changes nothing; a finished message hands its lane on.
]]
-- @include lib/clock.lua
-- @include lib/bounds.lua

-- The files that lib/finish.lua includes come first, so that the part shares them.
-- @include lib/held_batch.lua
-- @include lib/leased.lua
-- @include lib/lanes.lua
-- @include lib/wake.lua
-- @include lib/limits.lua

-- @lazy lib/keep_finished.lua
-- @include lib/finish.lua

local held, lost = held_batch(keys.leases)
if #held.ids == 0 then
  return lost
end

local now = tick(redis.call('HGET', keys.meta, 'clock'))
local chosen, kept = {}, nil
if keeps then
  local given = cmsgpack.unpack(results)
  for i, at in ipairs(held.ats) do
    chosen[i] = given[(at - settles.first) / settles.stride + 1]
  end
  kept = bounds_of(done_kept.count, done_kept.age, done_kept.bytes)
end
finish(keys, held, chosen, kept, now)
return answer(lost)
