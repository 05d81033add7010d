--[[
tidy_topic -- add due publishes to the stream, trim or free entries, and remove consumers that are gone.

Publishes and claims do the same. A repeat does no harm, so the script keeps no call record.

KEYS     stream, msgs, dedup, dedup_ends, dead, why, meta, waiting
ARGV     kept   row     count, age: microseconds, bytes; of the stream, -1: no bound
         frees  flag    1: remove entries that every group has acked | 0: keep them
DRAINS   msgs
RETURNS  1  there may be more to do
         0  nothing is left to do
KEEPS    I9
]]
-- @include lib/bounds.lua
-- @include lib/clock.lua
-- @include lib/delayed_publishes.lua
-- @include lib/stream_retention.lua
-- @include lib/acked_entries.lua
-- @include lib/dedup_windows.lua
local WINDOWS_PER_CALL = 100
local GONE_MS = 3600000 -- a consumer without pending entries that was idle for longer is gone
local bounds = bounds_of(kept.count, kept.age, kept.bytes)

local function forget_consumers(group)
  for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', STREAM, group)) do
    local consumer = {}
    for at = 1, #row, 2 do
      consumer[row[at]] = row[at + 1]
    end
    if consumer.pending == 0 and consumer.idle > GONE_MS then
      redis.call('XGROUP', 'DELCONSUMER', STREAM, group, consumer.name)
    end
  end
end

local now, ahead = tick(redis.call('HGET', keys.meta, 'clock'))
local next_us = add_due_publishes(keys, STREAM)
retain(keys, STREAM, bounds, now - ahead)
if frees then
  free_acked(STREAM)
end
for _, group in ipairs(groups_of(STREAM)) do
  forget_consumers(group.name)
end
local closed = close_windows(keys, now, WINDOWS_PER_CALL)
return (next_us == 0 or closed == WINDOWS_PER_CALL) and 1 or 0
