-- What lib/wake.lua is for queues, in the scripts of topics and groups. Their consumers wait with XREAD for entries,
-- so that a plain XADD wakes them, and beside that for a bell: a stream with one entry, rung when something changes
-- that is no entry. All hear it, and nobody takes it away: there is nothing to hand on.

-- @include lib/token.lua

local function take_token_if_empty()
  -- a bell may stay
end

-- The last ring, to wait for the next.
local function last_ring(wake)
  local last = redis.call('XREVRANGE', wake, '+', '-', 'COUNT', 1)
  return last[1] and last[1][1] or '0-0'
end
