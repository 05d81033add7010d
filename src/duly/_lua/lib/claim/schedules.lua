-- Part of claim: schedules that are due. Only a client can compute their next run, so a claim returns them to its
-- caller. Reads the store, and changes nothing.

local SCHEDULES_PER_CALL, LOOK_AGAIN_US = 10, 1000000

-- Returns { name, row ... }, and when to check again. A schedule that no caller can fire stays due. So if more are due
-- than one call returns, calls begin at different schedules, chosen by the clock, and wrap around.
local function due_schedules(now)
  local named, count = {}, redis.call('ZCOUNT', SLOTS, '-inf', now)
  local most = math.min(count, SCHEDULES_PER_CALL)
  local from = count > most and now % count or 0
  for at = from, from + most - 1 do
    local name = redis.call('ZRANGE', SLOTS, at % count, at % count)[1]
    named[#named + 1] = name
    named[#named + 1] = redis.call('HGET', SCHEDULES, name) or ''
  end
  local slot =
    tonumber(redis.call('ZRANGEBYSCORE', SLOTS, string.format('(%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
  if count > most then
    slot = math.min(slot or math.huge, now + LOOK_AGAIN_US)
  end
  return named, slot
end
