-- Part of claim: the first claim of a minute takes a point of the history. Reads claim.now. Changes nothing else.

-- @include lib/points.lua
-- @include lib/backlog.lua

-- `ends` and `clock` are fields of meta. A group is in use from the first entry on.
local function note_minute(claim, ends, clock)
  local is_used = clock
  -- @only group
  is_used = is_used or redis.call('EXISTS', STREAM) == 1
  -- @end
  if is_used then
    take_point(HISTORY, META, claim.now, ends, backlog(keys, claim.now))
  end
end
