-- Part of claim, for groups: the stream's own group, its consumers and its pending list. Reads claim.ids. Sets
-- claim.has_acked, so that the claim frees entries once, at its end.

-- @include lib/group_position.lua

-- Creates the stream's group at the position that the caller names. If another program has removed the group, it must
-- not skip entries that it has not read. So it goes on after `fed`, the last entry that it has read. If the stream is
-- new as well, it begins with the first entry.
local function make_group(fed)
  local from = within_stream(STREAM, start)
  if start == '$' and fed then
    from = is_before(last_id(STREAM), fed) and '0' or fed
  end
  redis.call('XGROUP', 'CREATE', STREAM, GROUP, from, 'MKSTREAM')
  redis.call('HSET', TOPIC_META, 'group:' .. GROUP, 1)
end

local function ack(claim, ids)
  ack_in_stream(GROUP, ids)
  claim.has_acked = true
end

-- Acks an entry of a consumer. A consumer without pending entries is removed: if it is alive, its next read creates it
-- again. `name` is false if the holder of the entry is not known.
local function leave_pending(claim, id, name)
  ack(claim, { id })
  local pending = name and redis.pcall('XPENDING', STREAM, GROUP, '-', '+', 1, name)
  if pending and not pending.err and #pending == 0 then -- an error: another program has removed the group
    redis.call('XGROUP', 'DELCONSUMER', STREAM, GROUP, name)
  end
end

-- Adds the first `count` messages of a claim, which came from the group's own store, to the consumer's pending list.
-- The server skips entries that were trimmed.
local function list_as_pending(claim, count)
  local arguments = { unpack(claim.ids, 1, count) }
  arguments[count + 1], arguments[count + 2] = 'FORCE', 'JUSTID'
  redis.pcall('XCLAIM', STREAM, GROUP, consumer, 0, unpack(arguments))
end
