--[[
recycle -- finish messages and store them again as new in one step, so that there is always one copy.

KEYS     call, msgs, leased, leases, counts, why, expires, dead, lanes, parked, wake, meta, waiting*
ARGV     sequence  text
         digits    text
         settles*  rows    id, fence, delay: microseconds, part: '' keeps the body
DRAINS   leases
RETURNS  { position ... } of those whose lease was lost; an error, and no change, if a part has another priority, key,
         ttl or dedup value than its message
KEEPS    I1 I2 I3 I5 I6 I7 I8
]]
-- @include lib/give_back.lua
-- @include lib/large.lua

local KEPT_FLAGS = FLAG_TTL + FLAG_DEDUP + FLAG_KEY

-- Returns why a part is refused, or nil. A claim would not find a part with another priority or key.
local function refusal_of(held)
  local part, lease = settles.part(held.at), held.lease
  if part == '' then
    return nil
  end
  local record = stamped(0, 0, part)
  if flaw_of(record) then
    return 'cannot be recycled: its new part cannot be read'
  elseif priority_of(record) ~= lease.priority then
    return 'has priority ' .. lease.priority .. ', and its new part has ' .. priority_of(record)
  elseif options_of(record).key ~= lease.key then
    return 'cannot be recycled: its new part has another key'
  elseif bit.band(flags_of(record), KEPT_FLAGS) ~= bit.band(lease.flags, KEPT_FLAGS) then
    return 'cannot be recycled: its new part has another ttl or dedup value'
  end
  return nil
end

local function renewed(held, old, counted, clock)
  local delay, part = tonumber(settles.delay(held.at)), settles.part(held.at)
  if part == '' then
    part = part_of(old)
  end
  local record = stamped(clock, clock + delay, part)
  redis.call('HSET', keys.msgs, held.id, record)
  redis.call('HDEL', keys.why, held.id)
  if #record > LARGE then
    redis.call('HSET', keys.meta, 'large', 1)
  end
  if #record ~= #old then
    redis.call('HINCRBY', keys.meta, 'bytes', #record - #old)
  end
  for i = 1, DUE do
    counted[i] = 0 -- as new
  end
  counted[CYCLES] = counted[CYCLES] + 1
  if held.lease.key then
    hand_on(keys, { held.lease.key }, { held.id }, clock)
  end
  return record, due_of(record)
end

return give_back('recycled', renewed, refusal_of)
