-- Part of claim: due messages that cannot be delivered. A damaged one becomes a dead letter, an expired one is dropped.
-- Reads claim.now. Adds to claim.buried.

-- @include lib/claim/on_dead.lua
-- @include lib/record.lua
-- @include lib/counts.lua
-- @include lib/history.lua
-- @include lib/lanes.lua
-- @include lib/forget.lua
-- @include lib/expire.lua
-- @include lib/bury.lua
-- @include lib/trim.lua

-- Returns false if the message cannot be delivered, and has been removed from `waiting`.
local function may_be_delivered(claim, waiting, id, record)
  local flaw = flaw_of(record)
  if flaw then
    redis.call('ZREM', waiting, id)
    bury(keys, id, record, record and #record or 0, flaw, counts_of(COUNTS, id), history_of(WHY, id), claim.now)
    claim.buried = claim.buried + 1
    return false
  end
  if not has(flags_of(record), FLAG_TTL) then
    return true
  end
  if expiry_of(record) <= claim.now then
    drop_expired(keys, id, record, claim.now)
    redis.call('ZREM', waiting, id) -- its record may have another priority
    return false
  end
  redis.call('ZREM', EXPIRES, id)
  return true
end

local function drop_some_expired(claim)
  expire_some(keys, claim.now, 0)
end

-- Keeps the dead letters within the bounds of the call.
local function trim_dead(claim)
  local kept = bounds_of(dead_kept.count, dead_kept.age, dead_kept.bytes)
  trim(keys, 'dead', kept, claim.now, claim.buried)
end
