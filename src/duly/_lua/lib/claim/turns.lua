-- Part of claim: the order in which due messages of a priority are leased: by due time, or by the shares of retries and
-- new messages. Reads claim.ids, allowed, any_counts, is_keyed, has_large and parked. Changes claim.is_full.

local LOOKED_AHEAD, MOST_LOOKED_AHEAD = 10, 640

-- Leases one due message, or parks it.
local function take_one(claim, waiting, id)
  local candidates, at, lanes = { id }, #claim.ids + 1, nil
  if claim.has_large and #fitting_records(claim, candidates) == 0 then
    return
  end
  local found = redis.call('HMGET', MSGS, id)
  if claim.is_keyed then
    candidates, found, lanes = in_turn(claim, waiting, candidates, found, 1)
  end
  if #candidates > 0 then
    lease_candidates(claim, waiting, candidates, found, lanes)
    note_lateness(claim, at)
    redis.call('ZREM', waiting, id)
  end
end

-- While new messages and retries of one priority are due, gives each kind its share.
local function take_by_share(claim, waiting, digit)
  local kinds = both_kinds(claim, waiting, digit)
  if not kinds then
    return
  end
  while #claim.ids < claim.allowed and not claim.is_full do
    local id, credit, is_alone = next_by_share(claim, kinds)
    if not id then
      break
    end
    local before = #claim.ids
    take_one(claim, waiting, id)
    if #claim.ids > before then
      kinds.turns.credit = credit
    end
    claim.is_full = claim.is_full or is_alone
  end
  store_turns(kinds.turns, digit)
end

-- Leases due messages of one priority. While messages are parked, it reads the ones after them.
local function take_in_turn(claim, waiting, digit)
  if retry_share > 0 and claim.any_counts then
    take_by_share(claim, waiting, digit)
    if claim.is_full or #claim.ids == claim.allowed then
      return
    end
  end
  local ahead = 0
  repeat
    local parked_before = claim.parked
    take_from(claim, waiting, ahead)
    if claim.parked == parked_before then
      return
    end
    -- With half of the wanted messages another round does not pay: the reply asks for another claim instead.
    claim.is_full = claim.is_full or claim.parked >= PARKED_PER_CALL or 2 * #claim.ids >= claim.allowed
    ahead = math.min(math.max(2 * ahead, LOOKED_AHEAD), MOST_LOOKED_AHEAD) -- a long lane is parked in a few rounds
  until claim.is_full
end
