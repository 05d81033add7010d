-- Part of claim: suspects, messages whose next crash would be their last (decision 11). The argument `suspects` states
-- whether a caller gets none of them, or one and nothing else. A message that is skipped stays where it is.
-- Reads claim.now and claim.ids. Changes claim.is_full, and sets claim.has_skipped_suspects.

-- @include lib/counts.lua

local LOOKED_PAST = 100 -- suspects of one priority

local function is_suspect(stored_counts)
  return read_counts(stored_counts)[CRASHES] >= crash_limit - 1
end

-- Adds messages of `due` that are not suspects to `chosen`, until there are `wanted`.
local function skip_suspects(claim, due, chosen, wanted)
  local counts = #due > 0 and redis.call('HMGET', COUNTS, unpack(due))
  for i, id in ipairs(due) do
    if #chosen == wanted then
      return
    elseif is_suspect(counts[i]) then
      claim.has_skipped_suspects = true
    else
      chosen[#chosen + 1] = id
    end
  end
end

-- Returns the messages that this caller may have; `due` has the first `wanted`. Suspects are left out, and messages
-- after them take their place. Or the result is one suspect and nothing else.
local function without_suspects(claim, waiting, due, wanted)
  if suspects == 'alone' and #claim.ids == 0 and #due > 0 and is_suspect(redis.call('HGET', COUNTS, due[1])) then
    claim.is_full = true -- it is delivered alone
    return { due[1] }
  end
  local chosen, behind = {}, {}
  skip_suspects(claim, due, chosen, wanted)
  if #chosen < #due then
    behind = due_in(waiting, claim.now, wanted, LOOKED_PAST)
    skip_suspects(claim, behind, chosen, wanted)
  end
  -- More messages may be due. If none was chosen, another claim would find the same suspects.
  claim.is_full = #chosen == wanted or (#chosen > 0 and #behind == LOOKED_PAST)
  return chosen
end

-- Returns the first message that is due later, as { id, due }, or {}: skipped messages are not upcoming.
local function first_after(waiting, now)
  return redis.call('ZRANGEBYSCORE', waiting, string.format('(%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
end
