-- As lib/pending_leased.lua, where the topic keeps nothing: entries that every group has acked are removed.

-- @include lib/leased_set.lua
-- @include lib/group.lua
-- @include lib/free.lua

-- Entries that this group is done with, or has in its own store.
local function ack_entries(group, ids)
  redis.call('XACK', STREAM, group, unpack(ids))
  free_acked(STREAM)
end

local function remove_leased(leased, ids)
  ack_entries(group_of(leased), ids) -- first: it fails if somebody has overwritten the stream
  redis.call('ZREM', leased, unpack(ids))
  if redis.call('ZCARD', leased) == 1 then
    redis.call('ZREM', leased, PILLAR)
  end
end
