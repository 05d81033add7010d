-- Part of claim, for groups: the stream's own group, its consumers and its pending list. Reads claim.ids. Sets
-- claim.has_acked, by which a claim frees entries once, at its end.

-- @include lib/position.lua

-- Makes a group that the stream does not know. It begins where the caller says. A group that another program has
-- removed does not begin behind entries that it never had: it goes on behind `fed`, the last entry that it has had, and
-- in a stream that is new as well, with the first.
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

-- Ends the hold of a consumer on an entry. A consumer that has nothing pending is removed; if it lives, its next read
-- makes it known again. `name` is false if it is not known who held the entry.
local function leave_pending(claim, id, name)
  ack(claim, { id })
  local pending = name and redis.pcall('XPENDING', STREAM, GROUP, '-', '+', 1, name)
  if pending and not pending.err and #pending == 0 then -- an error: another program has removed the group
    redis.call('XGROUP', 'DELCONSUMER', STREAM, GROUP, name)
  end
end

-- Lists messages that came from the group's own store, the first of a claim, under the consumer's name. Entries that
-- the stream has no more are left out.
local function list_as_pending(claim, count)
  local arguments = { unpack(claim.ids, 1, count) }
  arguments[count + 1], arguments[count + 2] = 'FORCE', 'JUSTID'
  redis.pcall('XCLAIM', STREAM, GROUP, consumer, 0, unpack(arguments))
end
