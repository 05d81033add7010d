-- XACK, whatever the ids are: the server refuses all of them for one that no entry can have, and somebody else may have
-- written it into the group's store. Such an id is in no pending list, and must not keep the others there.

-- @include lib/group.lua
-- @include lib/entry_ids.lua

local function ack_in_stream(group, ids)
  local acked = redis.pcall('XACK', STREAM, group, unpack(ids))
  if type(acked) == 'number' then
    return
  end
  local of_entries = {}
  for _, id in ipairs(ids) do
    if is_entry_id(id) then
      of_entries[#of_entries + 1] = id
    end
  end
  of_entries[1] = of_entries[1] or '0-1' -- it fails all the same if somebody has overwritten the stream
  redis.call('XACK', STREAM, group, unpack(of_entries))
end
