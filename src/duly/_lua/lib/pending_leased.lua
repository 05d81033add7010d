-- What lib/leased.lua is for queues, in the scripts of groups: what is leased is in the pending list of the stream's
-- consumer group, under the consumer's name, and leaves it when the lease ends, however it ends. What waits for another
-- delivery is in the group's own store, out of reach of those who trim the stream or claim idle entries.

-- @include lib/leased_set.lua
-- @include lib/acking.lua

local function remove_leased(leased, ids)
  ack_entries(group_of(leased), ids) -- first: it fails if somebody has overwritten the stream
  redis.call('ZREM', leased, unpack(ids))
  if redis.call('ZCARD', leased) == 1 then
    redis.call('ZREM', leased, PILLAR)
  end
end
