-- Finds out which settles of a call hold their lease. This is for large batches: it makes no table per message and
-- reads no record.

-- @include lib/lease.lua

-- Reads the settles of a call. Returns a table of those that hold their lease: their ids, the positions of their rows
-- in ARGV, their lease texts, the total size of their records, the lanes that they own with the ids of the owners, and
-- the ids that have rows in `counts` or `why`. Returns also the positions (1, 2 ...) of those that lost their lease. An
-- id given twice is settled once (I5).
local function held_batch(leases)
  local asked, lost, seen = {}, {}, {}
  local ids, ats, texts, lanes, owners, ids_with_rows, size = {}, {}, {}, {}, {}, {}, 0
  local n, owned = 0, 0
  local unpack_lease, sub = struct.unpack, string.sub
  for at = settles.first, settles.last, settles.stride do
    n = n + 1
    asked[n] = settles.id(at)
  end
  local stored = redis.call('HMGET', leases, unpack(asked))
  local last_text, last_head, last_given, given_fence -- most leases of a batch are equal, or all but the key
  local fence, bytes, flags, key_size, _
  n = 0
  for position, id in ipairs(asked) do
    local text, at = stored[position], settles.first + (position - 1) * settles.stride
    local given = settles.fence(at)
    if given ~= last_given then
      last_given, given_fence = given, tonumber(given)
    end
    if text and text ~= last_text then
      last_text = text
      local head = sub(text, 1, LEASE_KEY_AT - 1)
      if head ~= last_head then
        last_head = head
        -- Without a key, these two bytes are the beginning of the consumer's name, and are not used.
        fence, bytes, flags, _, key_size = unpack_lease(KEYED_LEASE_FORMAT, text)
      end
    end
    if text and fence == given_fence and not seen[id] then
      n = n + 1
      ids[n], ats[n], texts[n], seen[id] = id, at, text, true
      size = size + bytes
      if flags % (2 * FLAG_KEY) >= FLAG_KEY then
        owned = owned + 1
        lanes[owned], owners[owned] = sub(text, LEASE_KEY_AT, LEASE_KEY_AT - 1 + key_size), id
      end
      if flags >= FLAG_HAS_COUNTS then
        ids_with_rows[#ids_with_rows + 1] = id
      end
    else
      lost[#lost + 1] = position
    end
  end
  local held = { ids = ids, ats = ats, texts = texts, size = size, lanes = lanes, owners = owners }
  held.ids_with_rows = ids_with_rows
  return held, lost
end
