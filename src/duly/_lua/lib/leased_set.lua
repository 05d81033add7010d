-- The sorted set of leases, id -> deadline, as long as anything is leased with one member more: a pillar
-- at +inf that is too long for the compact encoding, in which every look-up walks from the front.
-- Measured on Valkey 9.1: claiming 100 messages is 1.1 us a message cheaper. Ids have no control
-- characters, so it cannot be one. Lease texts are longer than 64 bytes for the same reason.

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
