-- How leases end. Groups have another form of this: lib/pending_leased.lua.

-- @include lib/leased_set.lua

local function remove_leased(leased, ids)
  redis.call('ZREM', leased, unpack(ids))
  if redis.call('ZCARD', leased) == 1 then
    redis.call('ZREM', leased, PILLAR)
  end
end
