-- Part of claim: when the caller should claim again. Reads claim.now, ids, is_cut_short, is_full, is_keyed,
-- has_skipped_suspects and free_at. Changes nothing.

-- Returns the microseconds until a claim may find more, -1 for never. `next_at` is the time of the next event that the
-- caller knows of, which includes the ends of leases.
local function until_next(claim, in_use, next_at)
  -- A caller that got nothing may get a suspect next: undeliverable messages may have come before it.
  local may_have_suspect = claim.has_skipped_suspects and suspects == 'alone' and #claim.ids == 0
  -- A claim behind a block takes one message although there is room for more, so it finds the next one.
  local goes_on = limit == 0 or (after == 'behind' and not claim.has_skipped_suspects)
  local may_find_more = (#claim.ids == limit and not goes_on) or claim.is_full or may_have_suspect
  if claim.is_cut_short or (may_find_more and not claim.free_at) then
    return 0
  end
  if claim.free_at then
    next_at = math.min(next_at, claim.free_at)
  else
    for digit in string.gmatch(in_use, '%d') do
      local waiting = waiting.key(digit)
      local head = claim.has_skipped_suspects and first_after(waiting, claim.now)
        or redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')
      next_at = math.min(next_at, tonumber(head[2]) or math.huge)
    end
  end
  if claim.is_keyed and redis.call('EXISTS', PARKED) == 1 then
    -- When a message expires, its lane may be handed on to a parked one.
    local expiry = redis.call('ZRANGE', EXPIRES, 0, 0, 'WITHSCORES')[2]
    next_at = math.min(next_at, tonumber(expiry) or math.huge)
  end
  if next_at == math.huge then
    return -1
  end
  return math.max(next_at - claim.now, 0)
end
