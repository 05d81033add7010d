-- Replaces lib/wake.lua in the scripts of topics and groups. Their consumers wait with XREAD for entries, so that a
-- plain XADD wakes them. The same XREAD waits for a bell: a stream of one entry, which is rung for changes that add no
-- entry. A bell wakes all waiting consumers, so no consumer has to pass it on.

-- @include lib/wake_token.lua

local function take_wake_token_if_empty()
  -- A bell stays: only delete removes it.
end

-- Returns the id of the last ring: a consumer waits for later ones.
local function last_ring(wake)
  local last = redis.call('XREVRANGE', wake, '+', '-', 'COUNT', 1)
  return last[1] and last[1][1] or '0-0'
end
