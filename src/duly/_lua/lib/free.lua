-- Removes entries that every group has acked: XACK alone frees nothing. All that lies before the first entry that some
-- group has not read, or has pending, is done with. Groups of other programs count like ours. A group that was moved
-- back has both, and reads on before what it has pending.

-- @include lib/entry_ids.lua
-- @include lib/groups_of_stream.lua

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
    redis.call('XDEL', stream, mark) -- the last one that all have read
  end
end
