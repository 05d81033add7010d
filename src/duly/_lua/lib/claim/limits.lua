-- Part of claim: `rate` and `max_in_flight` (decision 16). `room` returns how many messages a call may lease. At the
-- end, `limit_state` returns whether a limit holds messages back. Reads claim.now, claim.ids and claim.allowed. Changes
-- nothing of claim, and writes `tat` and `limited` of meta.

-- @include lib/limits.lua

local TOLERANCE_US = 100000 -- messages that the rate held back and that are claimed late catch up by at most this
local GRAIN_US = 10000 -- a rate delivers the messages of this time together: one claim each would cost too much

-- No message is delivered earlier than the rate allows. Only messages that the rate held back may catch up. `tat` and
-- `was_limited` are fields of meta.
local function room(now, tat, was_limited)
  local was_kept_by_rate = interval > 0 and was_limited and was_limited ~= UNTIL_A_LEASE_ENDS
  local pace_from, by_rate, by_leases = now, limit, limit
  if interval > 0 then
    local on_time = math.min(tat, now + math.ceil(interval)) -- a slower rate may have written it
    pace_from = math.max(on_time, was_kept_by_rate and now - TOLERANCE_US or now)
    by_rate = math.max(math.floor((now - pace_from) / interval) + 1, 0)
  end
  if in_flight >= 0 then
    by_leases = math.max(in_flight - count_leased(LEASED), 0)
  end
  return {
    allowed = math.min(by_rate, by_leases, limit),
    needs_lease_to_end = by_leases <= by_rate, -- before there is room
    pace_from = pace_from, -- the rate allows the next delivery from then on
    was_kept_by_rate = was_kept_by_rate,
    tat = tat,
  }
end

local function is_any_due(now, in_use)
  for digit in string.gmatch(in_use, '%d') do
    if #due_in(keys.waiting[tonumber(digit)], now, 0, 1) > 0 then
      return true
    end
  end
  return false
end

-- Returns the time from which a claim may lease more, nil if no limit holds back a due message; and whether `limited`
-- of meta stays. `room` has returned `limits`.
local function limit_state(claim, limits, in_use)
  local taken, was_kept_by_rate = #claim.ids, limits.was_kept_by_rate
  local next_on_time = math.ceil(limits.pace_from + taken * interval)
  local from = math.ceil(next_on_time + math.max(GRAIN_US - interval, 0))
  local is_at_limit = claim.allowed < limit and taken == claim.allowed
  local is_left = (is_at_limit or was_kept_by_rate) and is_any_due(claim.now, in_use)
  local is_shortened = interval > 0 and limits.pace_from < limits.tat -- or each claim would begin its interval again
  if is_shortened or (interval > 0 and taken > 0) then
    redis.call('HSET', META, 'tat', next_on_time)
  end
  if is_left and is_at_limit then
    redis.call('HSET', META, 'limited', limits.needs_lease_to_end and UNTIL_A_LEASE_ENDS or from)
  elseif is_left then -- this caller wanted no more, and other callers may still catch up
    redis.call('HSET', META, 'limited', next_on_time)
  end
  return is_left and is_at_limit and (limits.needs_lease_to_end and math.huge or from) or nil, is_left
end
