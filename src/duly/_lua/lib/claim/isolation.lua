-- Part of claim: suspects, messages whose next crash would be their last (decision 11). The argument `suspects` says
-- whether a caller gets none of them, or one by itself. A message that is passed over does not move.
-- Reads claim.now and claim.ids. Changes claim.is_full, and sets claim.has_passed_over.

-- @include lib/counts.lua

local LOOKED_PAST = 100 -- suspects of one priority

local function is_suspect(stored_counts)
  return read_counts(stored_counts)[CRASHES] >= crash_limit - 1
end

-- Adds those of `due` that are no suspects to `chosen`, until there are `wanted`.
local function pass_suspects_over(claim, due, chosen, wanted)
  local counts = #due > 0 and redis.call('HMGET', COUNTS, unpack(due))
  for i, id in ipairs(due) do
    if #chosen == wanted then
      return
    elseif is_suspect(counts[i]) then
      claim.has_passed_over = true
    else
      chosen[#chosen + 1] = id
    end
  end
end

-- Returns what this caller may have, where `due` are the first `wanted`: messages that are no suspects, also from
-- behind suspects, or a suspect by itself.
local function without_suspects(claim, waiting, due, wanted)
  if suspects == 'alone' and #claim.ids == 0 and #due > 0 and is_suspect(redis.call('HGET', COUNTS, due[1])) then
    claim.is_full = true -- nothing goes with it
    return { due[1] }
  end
  local chosen, behind = {}, {}
  pass_suspects_over(claim, due, chosen, wanted)
  if #chosen < #due then
    behind = due_in(waiting, claim.now, wanted, LOOKED_PAST)
    pass_suspects_over(claim, behind, chosen, wanted)
  end
  -- There may be more where these came from; where none came from, another look would find the same.
  claim.is_full = #chosen == wanted or (#chosen > 0 and #behind == LOOKED_PAST)
  return chosen
end
