-- Removes entries that every group has acked, because XACK removes no entry. An entry is acked if it comes before the
-- first one that any group has pending or has not read. Groups of other programs count as well. A group that was moved
-- back may have unread entries before its pending ones.

-- @include lib/entry_ids.lua
-- @include lib/stream_groups.lua

local function free_acked(stream)
  if redis.call('XLEN', stream) == 0 then
    return
  end
  local mark, is_pending
  for _, group in ipairs(groups_of(stream)) do
    local first_pending = group.pending > 0 and redis.call('XPENDING', stream, group.name, '-', '+', 1)[1][1]
    local has_pending = first_pending and not is_before(group.last, first_pending)
    local id = has_pending and first_pending or group.last
    if not mark or is_before(id, mark) or (id == mark and has_pending) then
      mark, is_pending = id, has_pending
    end
  end
  if not mark then
    return
  end
  redis.call('XTRIM', stream, 'MINID', '=', mark)
  if not is_pending then
    redis.call('XDEL', stream, mark) -- the last entry that all groups have read
  end
end
