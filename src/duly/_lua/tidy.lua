--[[
tidy -- drop expired messages, trim dead and finished ones, and close dedup windows, a bounded number per call.

Sends and claims do the same. This script is for queues that are not in use, and for bounds that were lowered. A repeat
does no harm, so the script keeps no call record.

KEYS     msgs, counts, why, expires, dead, done, dedup, dedup_ends, lanes, parked, wake, meta, waiting*
ARGV     digits      text
         dead_kept   row     count, age: microseconds, bytes; of dead letters, -1: no bound
         keeps_done  flag    1: trim `done` to the bounds that follow | 0: `done` is not touched
         done_kept   row     count, age: microseconds, bytes; of finished messages, -1: no bound
DRAINS   msgs
RETURNS  1  there may be more to do
         0  nothing is left to do
KEEPS    I1 I2 I7 I9
]]
-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/wake.lua
-- @include lib/forget.lua
-- @include lib/expire.lua
-- @include lib/trim.lua
-- @include lib/dedup_windows.lua
local WINDOWS_PER_CALL = 100

local now = tick(redis.call('HGET', keys.meta, 'clock'))
local is_more = expire_some(keys, now, 0) == EXPIRED_PER_CALL

local function trim_some(place, kept)
  row_bytes(keys, place, 0) -- another version may have left them unknown
  local trimmed = trim(keys, place, kept, now, 0)
  is_more = is_more or trimmed == EXTRA_TRIMMED
end

trim_some('dead', bounds_of(dead_kept.count, dead_kept.age, dead_kept.bytes))
if keeps_done then
  trim_some('done', bounds_of(done_kept.count, done_kept.age, done_kept.bytes))
end
is_more = close_windows(keys, now, WINDOWS_PER_CALL) == WINDOWS_PER_CALL or is_more
take_wake_token_if_empty(keys.wake, keys.msgs, keys.meta)
return is_more and 1 or 0
