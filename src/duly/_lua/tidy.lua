--[[
tidy -- do what is overdue, a bounded part of it: drop what expired, trim what is over, close dedup windows.

Sends and claims do the same on their way. This is for a queue that nobody uses, and for bounds that were made
smaller. It may simply be done again, so it keeps no call record.

KEYS     msgs        hash  id -> record
         counts      hash  id -> what went wrong with it
         why         hash  id -> errors, reason
         expires     zset  id -> when a waiting message with a ttl is over
         dead        zset  id -> when it died
         done        zset  id -> when it was finished
         dedup       hash  dedup value -> id
         dedup_ends  zset  dedup value -> end of its window
         lanes       hash  key -> the id that its lane belongs to
         parked      zset  what is due and behind its lane's id
         wake        list  the wake token
         meta        hash  clock
         waiting*    zset  id -> due, every priority
ARGV     digits      priorities of `waiting*`
         keep_count  dead letters kept; -1: any number
         keep_age    microseconds they are kept; -1: for ever
         keep_bytes  bytes of them kept; -1: any number
         keeps       1: the caller keeps finished messages, within these bounds | 0: `done` is not touched
         done_count  finished messages kept; -1: any number
         done_age    microseconds they are kept; -1: for ever
         done_bytes  bytes of them kept; -1: any number
RETURNS  1  there may be more to do
         0  all is done
KEEPS    I1 I2 I7 I9
]]
-- @include lib/clock.lua
-- @include lib/drain.lua
-- @include lib/record.lua
-- @include lib/waiting.lua
-- @include lib/wake.lua
-- @include lib/forget.lua
-- @include lib/expire.lua
-- @include lib/trim.lua
-- @include lib/windows.lua
local FIRST_DEAD_BOUND, FIRST_DONE_BOUND = 2, 6
local WINDOWS_A_CALL = 100
local digits, keeps_done = ARGV[1], ARGV[5] == '1'
local keys = {
  msgs = KEYS[1],
  counts = KEYS[2],
  why = KEYS[3],
  expires = KEYS[4],
  dead = KEYS[5],
  done = KEYS[6],
  dedup = KEYS[7],
  dedup_ends = KEYS[8],
  lanes = KEYS[9],
  parked = KEYS[10],
  wake = KEYS[11],
  meta = KEYS[12],
  waiting = waiting_by_priority(13, digits),
}

let_a_full_server_drain(keys.msgs)
local now = tick(redis.call('HGET', keys.meta, 'clock'))
local is_more = expire_some(keys, now, 0) == EXPIRED_A_CALL

local function trim_some(place, size_field, counter, first_bound)
  local trimmed = trim(keys, place, size_field, counter, keep_from(first_bound), now, 0)
  is_more = is_more or trimmed == TRIMMED_BESIDE
end

trim_some(keys.dead, 'dead_bytes', 'trimmed', FIRST_DEAD_BOUND)
if keeps_done then
  trim_some(keys.done, 'done_bytes', 'done_trimmed', FIRST_DONE_BOUND)
end
is_more = close_windows(keys, now, WINDOWS_A_CALL) == WINDOWS_A_CALL or is_more
take_token_if_empty(keys.wake, keys.msgs, keys.meta)
return is_more and 1 or 0
