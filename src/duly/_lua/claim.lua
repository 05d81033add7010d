--[[
claim -- lease due messages to a consumer.

Messages whose lease ran out go back to their place first. Each counts a crash, and is buried at the crash limit. Then
the script leases due messages, the highest priority first. No other script checks whether time has passed, and no
other enforces the order within a key. A suspect is a message whose next crash would be its last. It may be delivered
alone, because a process that dies crashes all messages that it holds.

A server that stood still has many calls to run, in any order. Leases have run out, although their holders live and
have sent renewals. So a claim that runs long after it was sent reclaims no leases. If some have run out, it leases
nothing either, and the caller claims again.

KEYS     call, msgs, leased, leases, counts, why, expires, dead, dedup, dedup_ends, lanes, parked, schedules,
         slots, wake, meta, history, waiting*
ARGV     sequence     text
         late_after   number  time of the server, in microseconds, after which no lease is reclaimed; -1: none
         digits       text
         limit        number  messages at the most; 0: leases none, and withdraws a call that may have been carried out
         lease_us     number  microseconds
         crash_limit  number  lost leases after which a message is dead
         consumer     text    name of the holder
         after        text    watch: blocks if nothing is found | stay: blocks unless at its limit | behind: was sent
                              behind a block, ends no leases, and blocks unless more is due | pass: took a token |
                              leave
         suspects     text    with: like all others | none: skipped | alone: one, and nothing else, if it comes first
         dead_kept    row     count, age: microseconds, bytes; of dead letters, -1: no bound
         on_dead      text    continue: a dead letter frees its lane | block: it keeps its lane
         interval     number  microseconds from one delivery to the next, by the rate; 0: no rate
         in_flight    number  leases of the queue at the most; -1: any number
         retry_share  number  of deliveries, while both new messages and retries are due; 0: all by due time
-- @only group
         start        text    the id after which a new group begins
         filter*      rows    header, value; an entry must have one of the values of each header
-- @end
DRAINS   leases
REPEATS  the same messages with the same fence, except those that were settled or lost since
RETURNS  { state, now, next, fence, ids, records, counts, reclaimed, schedules }, and for a group { position ... }
         state      0 open | 1 paused | 2 open, and suspects were skipped | 3 limited
         next       microseconds to the next due time or lease deadline; 0: claim again; -1: nothing is pending;
                    skipped suspects do not count
         counts     packed counts of each message, '' for none; {} when no message has any
         reclaimed  id, consumer, microseconds overdue, is dead: of leases that ran out
         schedules  name, row: of schedules that are due, for the caller to fire
         position   of a group: the ids after which to wait for entries, the topic's bell, and the group's bell
KEEPS    I1 I2 I3 I4 I6 I7 I8 I9
]]
-- @include lib/clock.lua
-- @include lib/record_layout.lua
-- @include lib/lease_layout.lua
local OPEN, PAUSED, PASSED_OVER, LIMITED = 0, 1, 2, 3
local BYTES_PER_CALL, MINUTE_US = 4194304, 60000000

-- stylua: ignore
local meta = redis.call(
  'HMGET', META, 'clock', 'paused', 'priorities', 'large', 'delivered', 'keyed', 'tat', 'limited', 'slot', 'point'
)
local is_paused, was_limited, slot = meta[2], meta[8], tonumber(meta[9])
local in_use = is_paused and '' or meta[3] or '0' -- the priorities to claim from

local time, ahead = tick(meta[1])
local until_point = (meta[10] or 0) - time
local needs_point = until_point <= 0 or until_point > MINUTE_US
-- @only queue
-- @include lib/claim/lone_message.lua
-- @end

-- @include lib/lease_text.lua
-- @include lib/waiting.lua
-- @include lib/leased.lua
-- @include lib/wake.lua
-- @only group
-- @include lib/entry.lua
-- @include lib/large.lua
-- @include lib/stream_groups.lua
local GROUP = group_of(LEASED)
-- @end

-- @only group
-- @lazy lib/claim/native_group.lua
-- @end
-- @lazy lib/claim/repeated_claim.lua
-- @lazy lib/claim/point.lua
-- @lazy lib/claim/reclaim.lua
-- @lazy lib/claim/undeliverable.lua
-- @lazy lib/claim/suspects.lua
-- @lazy lib/claim/large_records.lua
-- @lazy lib/claim/lateness.lua
-- @lazy lib/claim/seldom_keys.lua
-- @alone lib/claim/lanes.lua
-- @lazy lib/claim/share_search.lua
-- @lazy lib/claim/shares.lua
-- @lazy lib/claim/limits.lua
-- @lazy lib/claim/schedules.lua
-- @only group
-- @lazy lib/delayed_publishes.lua
-- @lazy lib/claim/takeover.lua
-- @lazy lib/claim/entry_selection.lua
-- @end
-- @include lib/claim/due_messages.lua
-- @include lib/claim/turns.lua
-- @include lib/claim/next_claim.lua
-- @only group
-- @include lib/claim/entries.lua
-- @end

local is_late = late_after >= 0 and time - ahead > late_after

-- The state of this call. Its parts share it, and the head of each states what it reads and changes.
local claim = {
  now = time, -- the fence of its leases
  ids = {}, -- of the messages that it leases
  records = {},
  counts = {}, -- packed; empty if no message of the queue has any
  leased = {}, -- deadline, id ...
  leases = {}, -- id, text ...
  lease_texts = {}, -- by size, flags and priority
  lease_tails = {}, -- by the size of the key
  bytes = 0, -- of the records
  lateness = 0, -- of the message that was due first
  allowed = limit, -- messages that it may lease
  deadline = '', -- of its leases
  is_keyed = meta[6], -- whether messages may have keys
  has_large = meta[4], -- whether a large record was stored: then 1,000 records may not fit into a reply
  any_counts = false, -- whether any message was delivered before
  is_isolating = false, -- whether suspects are kept apart
  has_skipped_suspects = false, -- whether suspects were skipped
  parked = 0, -- messages that it parked
  buried = 0, -- messages that became dead letters
  reclaimed = {}, -- id, consumer, microseconds overdue, is dead ...
  is_full = false, -- whether more messages may be due
  is_cut_short = false, -- whether it left work to the next call, which should come at once
  free_at = nil, -- until when a limit holds messages back, if one does
  -- @only group
  clock = 0, -- tick of the last entry that was read
  has_acked = false, -- whether entries may be freed
  -- @end
}

-- @include lib/repeated.lua
if repeated then
  return repeated_reply(claim.now, repeated[1], repeated[2])
end

-- The first claim of a minute takes a point of the history, unless the queue was never used.
if needs_point then
  note_minute(claim, meta[10], meta[1])
end

-- Reclaim leases that ran out.
-- The server may have hung since a claim was sent behind a block: holders renew before a later claim.
local first_deadline = first_deadline_of(LEASED)
local has_reclaimed = first_deadline <= claim.now and not is_late and after ~= 'behind'
if has_reclaimed then
  reclaim_some(claim)
  first_deadline = first_deadline_of(LEASED)
elseif is_late then
  claim.is_full = first_deadline <= claim.now -- messages with leases that ran out may come first
end
-- @only group
local known = redis.call('HMGET', META, 'fed', 'swept', 'sweeping')
local fed, next_entry = known[1], nil -- microseconds until the next delayed publish is due
if redis.call('EXISTS', TOPIC_WAITING) == 1 then
  next_entry = add_due_publishes(delayed_of_topic(), STREAM)
end
local is_sweep_due = known[3] or claim.now - (known[2] or 0) >= lease_us / 2
-- Then the next claim comes at once: it takes over what this one has left, perhaps earlier messages.
claim.is_full = claim.is_full or claim.is_cut_short or (is_late and is_sweep_due)
if is_sweep_due and not is_late then
  fed = take_over_idle(claim, known[3] or '-', fed)
  claim.has_acked = claim.has_acked or known[2] -- not at the first sweep: other groups may not exist yet
end
-- @end

-- Find out how many messages this call may lease.
if redis.call('EXISTS', COUNTS, EXPIRES) > 0 then -- most queues have neither
  claim.any_counts = redis.call('EXISTS', COUNTS) == 1
  claim.is_isolating = claim.any_counts and suspects ~= 'with' and crash_limit > 1
  if redis.call('EXISTS', EXPIRES) == 1 then
    drop_some_expired(claim)
  end
end
local limits = (interval > 0 or in_flight >= 0) and room(claim.now, tonumber(meta[7] or 0), was_limited)
if limits then
  claim.allowed = limits.allowed
end

-- Lease due messages, the highest priority first. A group then reads on in the stream.
claim.deadline = string.format('%.0f', claim.now + lease_us)
for digit in string.gmatch(in_use, '%d') do
  if #claim.ids < claim.allowed and not claim.is_full then
    take_in_turn(claim, waiting.key(digit), digit)
  end
end
-- @only group
local from_store = #claim.ids
if not is_paused and from_store < claim.allowed and not claim.is_full then
  read_on(claim, fed)
end
if from_store > 0 then
  list_as_pending(claim, from_store)
end
-- @end
-- @only freeing
if claim.has_acked then
  free_acked(STREAM) -- once, at the end: it reads all groups of the stream
end
-- @end

-- A lane blocked by a dead letter goes on when the letter is trimmed.
if claim.buried > 0 or (on_dead == 'block' and claim.is_keyed) then
  trim_dead(claim)
end
local stays_limited
if limits then
  claim.free_at, stays_limited = limit_state(claim, limits, in_use)
end
if was_limited and not stays_limited and limit > 0 then
  redis.call('HDEL', META, 'limited')
end
local schedules = {}
if slot and slot <= claim.now then
  schedules, slot = due_schedules(claim.now)
end

local taken, now = #claim.ids, claim.now
if taken > 0 then
  add_leased(LEASED, claim.leased)
  redis.call('HSET', LEASES, unpack(claim.leases))
  -- The fence is the time of the claim. So it grows even if the queue is deleted or the server fails over.
  redis.call('HSET', META, 'clock', now, 'lateness', claim.lateness, 'delivered', (meta[5] or 0) + taken)
elseif has_reclaimed or claim.buried > 0 then
  store_clock(META, now)
end
-- @only group
if claim.clock > now then
  store_clock(META, claim.clock)
end
-- @end

-- Decide when to claim again, and which consumer watches until then. The leases of this call may end before others.
local state = is_paused and PAUSED or claim.has_skipped_suspects and PASSED_OVER or claim.free_at and LIMITED or OPEN
local next_at = math.min(slot or math.huge, first_deadline, taken > 0 and tonumber(claim.deadline) or math.huge)
-- @only group
next_at = math.min(next_at, now + (next_entry or math.huge))
-- @end
local next_us, fence = until_next(claim, in_use, next_at), taken > 0 and now or 0
local reply = { state, now, next_us, fence, claim.ids, claim.records, claim.counts, claim.reclaimed, schedules }
-- @only group
reply[10] = {}
if state == PASSED_OVER and #claim.reclaimed > 0 then
  leave_wake_token(WAKE) -- for a consumer that holds nothing; once, because all members hear the bell
end
if next_us ~= 0 and after ~= 'leave' then
  local group = find_group(STREAM, GROUP)
  reply[10] = { group and group.last or '0-0', last_ring(TOPIC_WAKE), last_ring(WAKE) }
end
-- @end
-- @only queue
local is_watching = next_us ~= 0 and (after == 'stay' or after == 'behind' or (after == 'watch' and taken == 0))
if state == PASSED_OVER then
  leave_wake_token(WAKE) -- for a consumer that holds nothing
elseif is_watching then
  redis.call('DEL', WAKE) -- this consumer has found all that is due, and watches from now on
elseif taken > 0 or next_us == 0 or (after == 'pass' and next_us > 0 and state ~= PAUSED) then
  leave_wake_token(WAKE) -- another consumer must watch due times and deadlines
elseif not meta[9] and redis.call('HLEN', MSGS) == 0 then
  redis.call('DEL', WAKE) -- an empty queue has no key (I9)
end
-- @end
answer({ fence, claim.ids }) -- stored even if empty: a late copy must not lease messages
return reply
