-- What lib/leased.lua is for queues, in the scripts of groups: what is leased is in the pending list of the stream's
-- consumer group, under the consumer's name, and leaves it when the lease ends, however it ends. What waits for another
-- delivery is in the group's own store, out of reach of those who trim the stream or claim idle entries.

-- @include lib/leased_set.lua
-- @include lib/group.lua

-- Entries that this group is done with, or has in its own store.
local function ack_entries(group, ids)
  redis.call('XACK', STREAM, group, unpack(ids))
end

local function put_freeing_off()
  -- nothing is freed here
end

local function free_for_others()
  -- as above
end

local function free_at_last()
  -- as above
end

local function remove_leased(leased, ids)
  ack_entries(group_of(leased), ids) -- first: it fails if somebody has overwritten the stream
  redis.call('ZREM', leased, unpack(ids))
  if redis.call('ZCARD', leased) == 1 then
    redis.call('ZREM', leased, PILLAR)
  end
end
