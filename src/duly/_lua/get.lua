--[[
get -- return all stored data of one message.

KEYS     msgs, leased, leases, counts, why, dead, done, lanes, parked, meta, waiting*
ARGV     digits  text
         id      text    of the message
RETURNS  {} unknown | { now, place, score, record, counts, why, lease, owner, ahead, paused, tat, leased,
                         owner_place, owner_score }
         place   waiting | parked | leased | dead | done
         owner   id of the message that owns its lane; owner_place and owner_score: its place, if it is another message
         ahead   number of due messages before it, if it is due and waits
         paused  who paused the queue; tat: see claim, 0 for none; leased: leases of the queue; '' if absent
KEEPS    writes nothing
]]
-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/leased.lua
-- @include lib/place.lua

local record = redis.call('HGET', keys.msgs, id)
local place, score, key = place_of(keys, id, record)
if not place then
  return {}
end
local meta = redis.call('HMGET', keys.meta, 'clock', 'paused', 'priorities', 'tat')
local now = tick(meta[1])

local function count_ahead()
  local ahead = 0
  for digit in string.gmatch(meta[3] or '0', '%d') do
    local waiting = keys.waiting[tonumber(digit)]
    if waiting == key then
      return ahead + redis.call('ZRANK', waiting, id)
    end
    ahead = ahead + redis.call('ZCOUNT', waiting, '-inf', string.format('%.0f', now))
  end
  return ahead
end

local lane = not flaw_of(record) and key_of(record)
local owner = lane and redis.call('HGET', keys.lanes, lane)
local owner_id = owner and string.sub(owner, 2) or ''
local owner_place, owner_score
if owner_id ~= '' and owner_id ~= id then
  owner_place, owner_score = place_of(keys, owner_id, redis.call('HGET', keys.msgs, owner_id))
end
return {
  now,
  place,
  score,
  record or '',
  redis.call('HGET', keys.counts, id) or '',
  redis.call('HGET', keys.why, id) or '',
  redis.call('HGET', keys.leases, id) or '',
  owner_id,
  place == 'waiting' and score <= now and count_ahead() or 0,
  meta[2] or '',
  tonumber(meta[4] or 0),
  count_leased(keys.leased),
  owner_place or '',
  owner_score or 0,
}
