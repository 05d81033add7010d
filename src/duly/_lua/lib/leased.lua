-- The sorted set of leases, id -> deadline. While anything is leased it has one member more, the encoding guard at
-- +inf. It is too long for the compact encoding, in which every lookup is a linear search. On Valkey 9.1 this saves
-- 1.1 us per message in a claim of 100. The guard consists of control characters, so it cannot be an id. Lease texts
-- are longer than 64 bytes for the same reason.

-- @only group
-- @include lib/group.lua
-- @end

-- @include lib/lease_layout.lua

-- `pairs_of` is { deadline, id ... }. The guard comes first, so that the set never has the compact encoding.
local function add_leased(leased, pairs_of)
  redis.call('ZADD', leased, '+inf', ENCODING_GUARD, unpack(pairs_of))
end

local function count_leased(leased)
  return math.max(redis.call('ZCARD', leased) - 1, 0)
end

-- Returns when the first lease ends, or infinity, which is the score of the guard.
local function first_deadline_of(leased)
  return tonumber(redis.call('ZRANGE', leased, 0, 0, 'WITHSCORES')[2]) or math.huge
end

-- Removes ids from the set. This is for scripts that ack the entries themselves; others call `remove_leased`.
local function drop_leased(leased, ids)
  redis.call('ZREM', leased, unpack(ids))
  if redis.call('ZCARD', leased) == 1 then
    redis.call('ZREM', leased, ENCODING_GUARD)
  end
end

-- Ends leases. The entry of a message that a group has leased is in the pending list of the stream's consumer group,
-- and leaves it with the lease. A message that waits for another delivery is in the group's own store. There it is safe
-- from trimming, and from programs that claim idle entries.
local function remove_leased(leased, ids)
  -- @only group
  ack_entries(group_of(leased), ids) -- first, because it fails if the stream has another type
  -- @end
  drop_leased(leased, ids)
end
