-- Part of claim: the order in which due messages of a priority are leased: by due time, or by the shares of retries and
-- new messages. Reads claim.now, ids, allowed, any_counts, is_isolating and parked. Changes claim.is_full.

local LOOKED_AHEAD, MOST_LOOKED_AHEAD = 10, 640

-- Leases due messages of one priority. While messages are parked, it reads the ones after them.
local function take_in_turn(claim, waiting, digit)
  if retry_share > 0 and claim.any_counts then
    take_by_share(claim, waiting, digit, take)
    if claim.is_full or #claim.ids == claim.allowed then
      return
    end
  end
  local ahead = 0
  repeat
    local parked_before, wanted, before = claim.parked, claim.allowed - #claim.ids, #claim.ids
    local looked_at = math.min(wanted + ahead, PARKED_PER_CALL - parked_before) -- each of them may be parked
    local due = due_in(waiting, claim.now, 0, looked_at)
    local may_be_more = #due == looked_at
    local candidates = claim.is_isolating and without_suspects(claim, waiting, due, looked_at) or due
    local had_turn = take(claim, waiting, candidates, wanted)
    if #claim.ids - before < had_turn and (may_be_more or had_turn == wanted) then
      claim.is_full = true -- some could not be delivered: there may be more of this priority
    end
    if claim.parked == parked_before then
      return
    end
    -- With half of the wanted messages another round does not pay: the reply asks for another claim instead.
    claim.is_full = claim.is_full or claim.parked >= PARKED_PER_CALL or 2 * #claim.ids >= claim.allowed
    ahead = math.min(math.max(2 * ahead, LOOKED_AHEAD), MOST_LOOKED_AHEAD) -- a long lane is parked in a few rounds
  until claim.is_full
end
