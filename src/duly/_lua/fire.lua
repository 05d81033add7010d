--[[
fire -- send the messages of a schedule's due runs, and store when it is due next.

Any number of consumers may find the same runs and call this script. The first call changes the row, and the others
find another row and do nothing. So each run is sent once.

KEYS     call, msgs, expires, parked, schedules, slots, wake, meta, history, waiting*
ARGV     sequence   text
         digits     text
         name       text    of the schedule
         seen       text    head of the row as the caller read it
         after      number  runs up to this time are done
         last_slot  number  time of the last run that was sent; 0: none yet
         next_at    number  when the schedule is due next; -1: never
         messages*  rows    id, part, when: =us since the epoch
RETURNS  1  done
         0  another consumer has fired it, or the schedule was changed, paused or removed
KEEPS    I1 I2 I3 I6 I9
]]
-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/wake.lua
-- @include lib/store.lua
-- @include lib/schedule.lua
-- @include lib/points.lua
-- @include lib/backlog.lua

local row = redis.call('HGET', SCHEDULES, name)
local created, _, _, paused = read_head(row)
if not created or paused ~= 0 or head_of(row) ~= seen then
  return answer(0)
end

-- Writes. A full server refuses the first one.
local meta = read_meta(keys.meta)
local now, ahead = tick(meta.clock)
store_clock(keys.meta, now)
local offsets = {}
for at = messages.first, messages.last, messages.stride do
  offsets[#offsets + 1] = at
end
if #offsets > 0 then
  if is_point_due(meta.point, now) then
    take_point(HISTORY, keys.meta, now, meta.point, backlog(keys, now))
  end
  store(keys, meta, now, ahead, offsets, {}, function(id, record)
    if has(flags_of(record), FLAG_TTL) then
      redis.call('ZADD', keys.expires, expiry_of(record), id)
    end
  end)
  redis.call('HINCRBY', keys.meta, 'sent', #offsets)
end
redis.call('HSET', SCHEDULES, name, written_head(created, after, last_slot, 0) .. plan_of(row))
set_next_run(SLOTS, keys.meta, name, next_at >= 0 and next_at)
leave_wake_token(keys.wake) -- a consumer must watch the next run
return answer(1)
