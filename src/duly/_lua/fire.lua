--[[
fire -- send what a schedule has to send for slots that have come, and note when to look at it next.

Any number of consumers may find the same slots and call this: the row changes with the first of them, and
the others do nothing. So each slot is dealt with once.

KEYS     call       string  last call of the stream and its reply
         msgs       hash    id -> record
         expires    zset    id -> when a waiting message with a ttl is over
         schedules  hash    name -> row
         slots      zset    name -> when to look at it next
         wake       list    the wake token
         meta       hash    clock, paused, priorities, large, slot
         waiting*   zset    id -> due, of the one priority
ARGV     sequence   of the call in its stream
         digits     the priority
         name       of the schedule
         seen       the head of the row that the caller goes by
         after      the slots up to here are dealt with
         last       the last slot that was sent for; 0: none yet
         next_at    when to look next; -1: never
         messages*  id, part, when: =us since the epoch
RETURNS  1  done
         0  somebody else has dealt with it, or the schedule was changed, paused or removed
KEEPS    I1 I2 I3 I6
]]
-- @include lib/call.lua
-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/waiting.lua
-- @include lib/wake.lua
-- @include lib/store.lua
-- @include lib/schedule.lua
local FIRST_WAITING, FIRST_MESSAGE, STRIDE = 8, 8, 3
local CALL, SCHEDULES, SLOTS = KEYS[1], KEYS[4], KEYS[5]
local sequence, digits, name, seen = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local after, last, next_at = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local keys = {
  msgs = KEYS[2],
  expires = KEYS[3],
  wake = KEYS[6],
  meta = KEYS[7],
  waiting = waiting_by_priority(FIRST_WAITING, digits),
}

local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end
local row = redis.call('HGET', SCHEDULES, name)
local created, _, _, paused = read_head(row)
if not created or paused ~= 0 or head_of(row) ~= seen then
  return answer(CALL, sequence, 0)
end

-- Writes. The first is one that a full server refuses.
local meta = read_meta(keys.meta)
local now, ahead = tick(meta.clock)
remember(keys.meta, now)
local offsets = {}
for at = FIRST_MESSAGE, #ARGV, STRIDE do
  offsets[#offsets + 1] = at
end
if #offsets > 0 then
  store(keys, meta, now, ahead, offsets, {}, function(id, record)
    if has(flags_of(record), FLAG_TTL) then
      redis.call('ZADD', keys.expires, expiry_of(record), id)
    end
  end)
  redis.call('HINCRBY', keys.meta, 'sent', #offsets)
end
redis.call('HSET', SCHEDULES, name, written_head(created, after, last, 0) .. plan_of(row))
look_at(SLOTS, keys.meta, name, next_at >= 0 and next_at)
leave_token(keys.wake) -- somebody must watch the next slot
return answer(CALL, sequence, 1)
