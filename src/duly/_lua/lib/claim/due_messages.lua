-- Part of claim: leases due messages. This is the hot path, so a step that can be done once per batch is not done once
-- per message. Reads claim.now, deadline, allowed, any_counts, is_isolating, has_large and is_keyed. Adds to
-- claim.ids, records, counts, leased, leases, bytes and lateness, and to the caches lease_texts and lease_tails. Sets
-- claim.is_full.

local PARKED_PER_CALL = 1000

-- Returns the text of a lease. Most messages of a batch have the same size and flags, so texts are cached. Of messages
-- with keys, all but the key is cached: the head, and the bytes on both sides of a key by its size.
local function lease_text(claim, size, flags, priority, key)
  local kind = size * 65536 + flags * 256 + priority
  local text = claim.lease_texts[kind]
  if not text then
    local now = claim.now
    text = key and lease_head(now, size, flags, priority) or written_lease(now, size, flags, priority, consumer)
    claim.lease_texts[kind] = text
  end
  if not key then
    return text
  end
  local around = claim.lease_tails[#key]
  if not around then
    around = { size = struct.pack('<H', #key), tail = lease_tail(#key, consumer) }
    claim.lease_tails[#key] = around
  end
  return text .. around.size .. key .. around.tail
end

-- Leases those of `candidates` that can be delivered. `lanes` has their keys, true for those that are parked, if the
-- queue is known to have any.
local function lease_candidates(claim, waiting, candidates, found, lanes)
  local ids, records, leased, leases = claim.ids, claim.records, claim.leased, claim.leases
  local deadline, byte, n, bytes = claim.deadline, string.byte, #claim.ids, claim.bytes
  local counts = claim.any_counts and redis.call('HMGET', COUNTS, unpack(candidates))
  for i, id in ipairs(candidates) do
    local record = found[i]
    local flags, priority = byte(record or '', FLAGS_AT, PRIORITY_AT)
    local key = lanes and lanes[i] -- a message with a lane is readable
    if not lanes and priority and flags % (2 * FLAG_KEY) >= FLAG_KEY then
      key = in_its_turn(claim, waiting, id, record)
      claim.is_full = claim.is_full or key == true -- more may be due
    end
    local is_plain = flags == 0 or (key and flags % 2 ~= FLAG_TTL)
    local is_good = is_plain and priority and priority <= 9
    if key ~= true and (is_good or may_be_delivered(claim, waiting, id, record)) then
      n = n + 1
      if counts then
        claim.counts[n] = counts[i] or ''
        flags = counts[i] and flags + FLAG_HAS_COUNTS or flags
      end
      ids[n], records[n] = id, record
      leased[2 * n - 1], leased[2 * n] = deadline, id
      leases[2 * n - 1], leases[2 * n] = id, lease_text(claim, #record, flags, priority, key)
      bytes = bytes + #record
    end
  end
  claim.bytes = bytes
end

-- Leases up to `wanted` of `candidates`, and parks those whose turn it is not. Notes how late the first one is.
-- Returns the number of messages that had their turn. Some of them may be undeliverable.
local function take(claim, waiting, candidates, wanted)
  if claim.has_large then
    candidates = fitting_records(claim, candidates)
  end
  if #candidates == 0 then
    return 0
  end
  local found, at = redis.call('HMGET', MSGS, unpack(candidates)), #claim.ids + 1
  local lanes, had_turn = nil, #candidates
  if claim.is_keyed then
    lanes, had_turn = in_turn(claim, waiting, candidates, found, wanted)
  end
  lease_candidates(claim, waiting, candidates, found, lanes)
  if claim.ids[at] then
    local since = claim.any_counts and due_by_counts(claim.counts[at])
    since = since or struct.unpack('<d', claim.records[at], DUE_AT)
    claim.lateness = math.max(claim.lateness, claim.now - since)
    redis.call('ZREM', waiting, unpack(claim.ids, at)) -- the others are gone already
  end
  return had_turn
end
