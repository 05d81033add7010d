--[[
tidy_topic -- do what is overdue on a topic: let in what is due, trim or free entries, forget consumers that are gone.

Publishes and claims do the same on their way. It may simply be done again, so it keeps no call record.

KEYS     stream      stream  the entries
         msgs        hash    id -> record, of publishes that wait for their time
         dedup       hash    dedup value -> id
         dedup_ends  zset    dedup value -> end of its window
         dead        zset    id -> when it died, of those that could not enter
         why         hash    id -> reason
         meta        hash    clock
         waiting*    zset    id -> due, of publishes that wait for their time
ARGV     keep_count  entries kept; -1: any number
         keep_age    microseconds they are kept; -1: for ever
         keep_bytes  bytes the stream may take; -1: any number
         frees       1: what every group has acked is removed | 0: it stays
RETURNS  1  there may be more to do
         0  all is done
KEEPS    I9
]]
-- @include lib/clock.lua
-- @include lib/drain.lua
-- @include lib/let_in.lua
-- @include lib/retain.lua
-- @include lib/free.lua
-- @include lib/windows.lua
local STREAM = KEYS[1]
local topic = {
  msgs = KEYS[2],
  dedup = KEYS[3],
  dedup_ends = KEYS[4],
  dead = KEYS[5],
  why = KEYS[6],
  meta = KEYS[7],
  waiting = KEYS[8],
}
local WINDOWS_A_CALL = 100
local GONE_MS = 3600000 -- a consumer that has nothing and was not heard of for so long is gone
local keep = { count = tonumber(ARGV[1]), age = tonumber(ARGV[2]), bytes = tonumber(ARGV[3]) }

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

let_a_full_server_drain(topic.msgs)
local now, ahead = tick(redis.call('HGET', topic.meta, 'clock'))
local next_us = let_in(topic, STREAM)
retain(topic, STREAM, keep, now - ahead)
if ARGV[4] == '1' then
  free_acked(STREAM)
end
for _, group in ipairs(groups_of(STREAM)) do
  forget_consumers(group.name)
end
local closed = close_windows(topic, now, WINDOWS_A_CALL)
return (next_us == 0 or closed == WINDOWS_A_CALL) and 1 or 0
