-- The sorted set of leases, id -> deadline, as long as anything is leased with one member more: a pillar
-- at +inf that is too long for the compact encoding, in which every look-up walks from the front.
-- Measured on Valkey 9.1: claiming 100 messages is 1.1 us a message cheaper. Ids have no control
-- characters, so it cannot be one. Lease texts are longer than 64 bytes for the same reason.

-- @only group
-- @include lib/group.lua
-- @end

local PILLAR = string.rep('\1', 65)

-- `pairs_of` is { deadline, id ... }; the pillar comes first, so that the set is made in its fast form.
local function add_leased(leased, pairs_of)
  redis.call('ZADD', leased, '+inf', PILLAR, unpack(pairs_of))
end

local function count_leased(leased)
  return math.max(redis.call('ZCARD', leased) - 1, 0)
end

-- The first lease to run out, as { id, deadline }, or nil.
local function first_leased(leased)
  local head = redis.call('ZRANGE', leased, 0, 0, 'WITHSCORES')
  if #head == 0 or head[1] == PILLAR then
    return nil
  end
  return head[1], tonumber(head[2])
end

-- Removes ids from the set. A script that acks their entries by itself calls this; others call `remove_leased`.
local function drop_leased(leased, ids)
  redis.call('ZREM', leased, unpack(ids))
  if redis.call('ZCARD', leased) == 1 then
    redis.call('ZREM', leased, PILLAR)
  end
end

-- Ends leases. A message that a group has leased is in the pending list of the stream's consumer group, and leaves it
-- with the lease. While it waits for another delivery it is in the group's own store, which neither trimming the stream
-- nor claiming idle entries can reach.
local function remove_leased(leased, ids)
  -- @only group
  ack_entries(group_of(leased), ids) -- first: it fails if the stream is of another type
  -- @end
  drop_leased(leased, ids)
end
