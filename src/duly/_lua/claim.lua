--[[
claim -- take what is due, and note who holds it until when.

Leases that ran out go back to their own place first, counted as a crash, dead at the limit. Then what
is due is taken, highest priority first. Nothing moves when time passes: this is the only place that
looks at the clock, and the only one that makes order within a key. A suspect, whose next crash would be its
last, may be kept apart from the others: a process that dies takes all that it holds with it.

KEYS     call, msgs, leased, leases, counts, why, expires, dead, dedup, dedup_ends, lanes, parked, schedules,
         slots, wake, meta, waiting*
ARGV     sequence     text
         digits       text
         limit        number  messages at the most
         lease_us     number  microseconds
         crash_limit  number  leases lost before a message is dead
         consumer     text    name of the holder
         after        text    watch: blocks if nothing is found | stay: blocks unless at its limit | pass: took a
                              token | leave
         suspects     text    with: like all others | none: passed over | alone: one by itself if it comes first
         dead_kept    row     count, age: microseconds, bytes; of dead letters, -1 is no bound
         on_dead      text    continue: a lane goes on | block: it waits for a dead letter
         interval     number  microseconds from one delivery to the next, by the rate; 0: no rate
         in_flight    number  leases out at the most; -1: any number
-- @only group
         start        text    the id behind which a group begins that does not exist yet
         filter*      rows    header, value; an entry has one of the values of each header
-- @end
DRAINS   leases
REPEATS  the same messages with the same fence, without those that were settled or lost since
RETURNS  { state, now, next, fence, ids, records, counts, reclaimed, schedules }, and for a group { position ... }
         state      0 open | 1 paused | 2 open, and suspects were passed over | 3 limited
         next       microseconds to the next due time or lease deadline; 0 look again; -1 nothing to come;
                    suspects that were passed over do not count
         counts     packed counts of each message, '' for none; {} when no message has any
         reclaimed  id, consumer, microseconds overdue, is dead: of leases that ran out
         schedules  name, row: of schedules whose slot has come, for the caller to fire
         position   of a group: the ids behind which to wait for entries, the topic's bell, and the group's
KEEPS    I1 I2 I3 I4 I6 I7 I8
]]
-- @include lib/clock.lua
-- @include lib/layout.lua
-- @include lib/lease_text.lua
-- @include lib/waiting.lua
-- @include lib/leased.lua
-- @include lib/wake.lua
local OPEN, PAUSED, PASSED_OVER, LIMITED = 0, 1, 2, 3
local RECLAIMED_A_CALL = 100
local PARKED_A_CALL, LOOKED_AHEAD, MOST_LOOKED_AHEAD = 1000, 10, 640
local SCHEDULES_A_CALL, LOOK_AGAIN_US = 10, 1000000
local BYTES_A_CALL = 4194304

-- @only group
-- @include lib/group.lua
-- @include lib/entry.lua
-- @include lib/entry_ids.lua
-- @include lib/large.lua
local READ_A_CALL, READ_AT_ONCE, ASKED_UNMEASURED = 1000, 100, 10
local GROUP = group_of(LEASED)
-- @end
keys.blocks = on_dead == 'block'

local meta = redis.call(
  'HMGET', META, 'clock', 'paused', 'priorities', 'large', 'delivered', 'keyed', 'tat', 'limited', 'slot'
)
local now = tick(meta[1])
local is_paused, in_use, is_keyed, was_limited, slot = meta[2], meta[3] or '0', meta[6], meta[8], tonumber(meta[9])

-- What is found: messages with their records and counts, what is written of their leases, leases that ran out.
local ids, records, counted, leased, leases, reclaimed = {}, {}, {}, {}, {}, {}
-- @only group
local again = {} -- of these, those that were handed out before
local claim = { has_acked = false } -- luacheck: ignore 241 (read where entries are freed)
local clock = now -- each entry has its own tick, so that the group has the order of the stream
-- @end
local buried, parked, bytes, lateness = 0, 0, 0, 0
local is_full, has_passed_over = false, false
local allowed, needs_lease_to_end = limit, false
local pace_from = now -- the next delivery is on time from then on, by the rate

local function due_in(waiting, offset, count)
  return redis.call('ZRANGEBYSCORE', waiting, '-inf', now, 'LIMIT', offset, count)
end

-- What most claims do not need. A script makes its functions anew at every call, and that is a good part of what a
-- small claim costs: so these are made when one of them is called for.
local make_seldom_needed = function()
  -- Of what is declared outside of a function, it can name 60 things: what only these need is declared here.
  local LOOKED_PAST = 100 -- suspects of one priority
  local TOLERANCE_US = 100000 -- what is kept back by its rate and claimed too late catches up, as far as this
  local GRAIN_US = 10000 -- what a rate gives in this time is handed out together: a claim each would be dear
-- @include lib/record.lua
-- @include lib/lease.lua
-- @include lib/counts.lua
-- @include lib/why.lua
-- @include lib/lanes.lua
-- @include lib/limits.lua
-- @include lib/forget.lua
-- @include lib/expire.lua
-- @include lib/bury.lua
-- @include lib/trim.lua
  -- A repeat gets the same messages with the same fence, without those that were settled or lost since.
  local function given_again(fence, given_ids)
    local given, found, trouble = {}, {}, {}
    for _, id in ipairs(given_ids) do
      local lease = redis.call('HGET', LEASES, id)
      local record = lease and read_lease(lease).fence == fence and redis.call('HGET', MSGS, id)
      if record then
        given[#given + 1] = id
        found[#found + 1] = record
        trouble[#trouble + 1] = redis.call('HGET', COUNTS, id) or ''
      end
    end
    return { OPEN, now, 0, fence, given, found, trouble, {}, {} }
  end

  -- @only group
-- @include lib/let_in.lua
-- @include lib/forget_consumer.lua
  -- @end

  local function reclaim(id, deadline)
    local stored, record = redis.call('HGET', LEASES, id), redis.call('HGET', MSGS, id)
    local lease = stored and read_lease(stored)
    local counts, past = counts_of(COUNTS, id), past_of(WHY, id)
    counts[CRASHES] = counts[CRASHES] + 1
    add_event(past, now, 'crash', lease)
    -- @only group
    ack_in_stream(GROUP, { id })
    claim.has_acked = true
    -- @end
    drop_leased(LEASED, { id })
    -- @only group
    if lease then
      forget_consumer(consumer_of(lease))
    end
    -- @end
    redis.call('HDEL', LEASES, id)
    redis.call('HINCRBY', META, 'crashed', 1)
    local flaw = flaw_of(record)
    local is_dead = flaw or counts[CRASHES] >= crash_limit
    if is_dead then
      local size = lease and lease.size or record and #record or 0
      bury(keys, id, record, size, flaw or 'poison', counts, past, now, lease and lease.key)
      buried = buried + 1
    else
      local due = counts[DUE] > 0 and counts[DUE] or due_of(record)
      redis.call('ZADD', keys.waiting[priority_of(record)], due, id)
      keep_counts(COUNTS, id, counts)
      keep_past(WHY, id, past)
      if has(flags_of(record), FLAG_TTL) then
        redis.call('ZADD', EXPIRES, expiry_of(record), id)
      end
    end
    reclaimed[#reclaimed + 1] = id
    reclaimed[#reclaimed + 1] = lease and consumer_of(lease) or ''
    reclaimed[#reclaimed + 1] = now - deadline
    reclaimed[#reclaimed + 1] = is_dead and 1 or 0
  end

  local was_kept_by_rate = interval > 0 and was_limited and was_limited ~= UNTIL_A_LEASE_ENDS

  -- How many may be handed out now, and whether a lease must end before there are more. By the rate: none before its
  -- time, and what was not kept back has nothing to catch up with.
  local function room()
    local by_rate, by_leases = limit, limit
    if interval > 0 then
      local tat = math.min(tonumber(meta[7] or 0), now + math.ceil(interval)) -- a slower rate may have written it
      pace_from = math.max(tat, was_kept_by_rate and now - TOLERANCE_US or now)
      by_rate = math.max(math.floor((now - pace_from) / interval) + 1, 0)
    end
    if in_flight >= 0 then
      by_leases = math.max(in_flight - count_leased(LEASED), 0)
    end
    return math.min(by_rate, by_leases, limit), by_leases <= by_rate
  end

  local function is_suspect(stored_counts)
    return read_counts(stored_counts)[CRASHES] >= crash_limit - 1
  end

  -- Adds those of `due` that are no suspects to `chosen`, until there are `wanted`.
  local function pass_suspects_over(due, chosen, wanted)
    local trouble = #due > 0 and redis.call('HMGET', COUNTS, unpack(due))
    for i, id in ipairs(due) do
      if #chosen == wanted then
        return
      elseif is_suspect(trouble[i]) then
        has_passed_over = true
      else
        chosen[#chosen + 1] = id
      end
    end
  end

  -- What this caller may have, where `due` are the first `wanted`: those that are no suspects, also from behind
  -- suspects, or a suspect by itself. What is passed over does not move.
  local function without_suspects(waiting, due, wanted)
    if suspects == 'alone' and #ids == 0 and #due > 0 and is_suspect(redis.call('HGET', COUNTS, due[1])) then
      is_full = true -- nothing goes with it
      return { due[1] }
    end
    local chosen, behind = {}, {}
    pass_suspects_over(due, chosen, wanted)
    if #chosen < #due then
      behind = due_in(waiting, wanted, LOOKED_PAST)
      pass_suspects_over(behind, chosen, wanted)
    end
    -- There may be more where these came from; where none came from, another look would find the same.
    is_full = #chosen == wanted or (#chosen > 0 and #behind == LOOKED_PAST)
    return chosen
  end

  -- How many of `candidates` fit into what is left of the bytes of a call; at least the first message.
  local function that_fit(candidates)
    if not meta[4] then
      return candidates -- no large record was ever stored: a thousand fit
    end
    local fitting, total = {}, bytes
    for _, id in ipairs(candidates) do
      total = total + redis.call('HSTRLEN', MSGS, id)
      if total > BYTES_A_CALL and #ids + #fitting > 0 then
        is_full = true
        break
      end
      fitting[#fitting + 1] = id
    end
    return fitting
  end

  local function bury_flawed(id, record, waiting)
    redis.call('ZREM', waiting, id)
    local size = record and #record or 0
    bury(keys, id, record, size, flaw_of(record), counts_of(COUNTS, id), past_of(WHY, id), now)
    buried = buried + 1
  end

  -- The key of a message, if it is to be handed out when the lane allows it: its record is sound and its ttl not over.
  local function lane_of(record)
    local flags, priority, low, high = string.byte(record or '', FLAGS_AT, OPTIONS_AT + 1)
    if flags == FLAG_KEY and high then -- the short way for most
      local last = OPTIONS_AT + 1 + low + 256 * high
      return last <= #record and priority <= 9 and string.sub(record, OPTIONS_AT + 2, last)
    end
    if not flags or not has(flags, FLAG_KEY) or flaw_of(record) then
      return false
    end
    return not (has(flags, FLAG_TTL) and expiry_of(record) <= now) and key_of(record)
  end

  -- The keys of those of `found` that have one, by position, and what `lanes` says of each key.
  local function lanes_of(found)
    local lanes, asked, owner = {}, {}, {}
    for i, record in ipairs(found) do
      local key = lane_of(record)
      lanes[i] = key
      if key then
        asked[#asked + 1] = key
      end
    end
    local stored = #asked > 0 and redis.call('HMGET', LANES, unpack(asked))
    for i, key in ipairs(asked) do
      owner[key] = stored[i] or nil
    end
    return lanes, owner
  end

  -- Of messages that are due, up to `wanted` whose turn it is in their lanes, which are theirs from now on, with their
  -- records and keys; the others before them are parked.
  local function in_turn(waiting, candidates, found, wanted)
    local lanes, owner = lanes_of(found)
    local chosen, chosen_records, chosen_lanes, members, ids_parked, rows = {}, {}, {}, {}, {}, {}
    local n, r = 0, 0
    for i, id in ipairs(candidates) do
      if n == wanted then
        break
      end
      local key = lanes[i]
      local held_by, new_owner = key and owner[key]
      if not held_by or string.sub(held_by, 2) == id then
        new_owner = key and not held_by and NOBODY_BEHIND .. id
        n = n + 1
        chosen[n], chosen_records[n], chosen_lanes[n] = id, found[i], key
      else
        new_owner = string.byte(held_by) == NOBODY_BYTE and SOMEBODY_BEHIND .. string.sub(held_by, 2)
        members[#members + 1] = 0
        members[#members + 1] = parked_member(key, found[i], id)
        ids_parked[#ids_parked + 1] = id
      end
      if new_owner then
        owner[key], rows[r + 1], rows[r + 2] = new_owner, key, new_owner
        r = r + 2
      end
    end
    if #ids_parked > 0 then
      redis.call('ZADD', PARKED, unpack(members))
      redis.call('ZREM', waiting, unpack(ids_parked))
      parked = parked + #ids_parked
    end
    if r > 0 then
      redis.call('HSET', LANES, LANES_PILLAR_FIELD, LANES_PILLAR, unpack(rows))
    end
    return chosen, chosen_records, chosen_lanes
  end

  -- For a message with a key in a queue that does not know that it has any, since `meta` was lost, or an older version
  -- stored it: its lane, and whether it is parked.
  local function in_its_turn(waiting, id, record)
    redis.call('HSET', META, 'keyed', 1)
    local chosen, _, lanes = in_turn(waiting, { id }, { record }, 1)
    return lanes[1], #chosen == 0
  end

  local function is_any_due()
    for digit in string.gmatch(in_use, '%d') do
      if #due_in(keys.waiting[tonumber(digit)], 0, 1) > 0 then
        return true
      end
    end
    return false
  end

  -- Whether a limit keeps back what is due; the time from which a claim may have more; and whether `limited` stays.
  -- Writes what follows from it.
  local function kept_back()
    local next_on_time = math.ceil(pace_from + #ids * interval)
    local from = math.ceil(next_on_time + math.max(GRAIN_US - interval, 0))
    local is_at_limit = allowed < limit and #ids == allowed
    local is_left = not is_paused and (is_at_limit or was_kept_by_rate) and is_any_due()
    local is_shortened = interval > 0 and pace_from < tonumber(meta[7] or 0) -- else its interval began with each claim
    if is_shortened or (interval > 0 and #ids > 0) then
      redis.call('HSET', META, 'tat', next_on_time)
    end
    if is_left and is_at_limit then
      redis.call('HSET', META, 'limited', needs_lease_to_end and UNTIL_A_LEASE_ENDS or from)
    elseif is_left then -- a caller that wanted no more does not end the catching up of others
      redis.call('HSET', META, 'limited', next_on_time)
    end
    return is_left and is_at_limit, needs_lease_to_end and math.huge or from, is_left
  end

  -- The due time that a retry or defer gave a message, or nil.
  local function due_by_counts(stored)
    local due = read_counts(stored)[DUE]
    return due > 0 and due or nil
  end

  -- @only group
-- @include lib/taking_over.lua
-- @include lib/sorting_entries.lua
  -- @end
  return {
    given_again = given_again,
    reclaim = reclaim,
    room = room,
    without_suspects = without_suspects,
    that_fit = that_fit,
    bury_flawed = bury_flawed,
    in_turn = in_turn,
    in_its_turn = in_its_turn,
    kept_back = kept_back,
    has_flaw = flaw_of,
    expiry_of = expiry_of,
    due_by_counts = due_by_counts,
    drop_expired = drop_expired,
    expire_some = expire_some,
    trim = trim,
    bounds_of = bounds_of,
    -- @only group
    let_in = let_in,
    take_over_silent = take_over_silent,
    without_known = without_known,
    that_match = that_match,
    entries_in_turn = entries_in_turn,
    -- @end
  }
end

local made
local function seldom()
  made = made or make_seldom_needed()
  return made
end

-- @include lib/repeated.lua
if repeated then
  return seldom().given_again(repeated[1], repeated[2])
end

local ran_out = redis.call('ZRANGEBYSCORE', LEASED, '-inf', now, 'WITHSCORES', 'LIMIT', 0, RECLAIMED_A_CALL)
for i = 1, #ran_out, 2 do
  seldom().reclaim(ran_out[i], tonumber(ran_out[i + 1]))
end
-- @only group
if #ran_out == 2 * RECLAIMED_A_CALL then
  is_full = true -- there are more, perhaps earlier ones: nothing is handed out before they have their places
end
local known = redis.call('HMGET', META, 'fed', 'swept', 'sweeping')
local next_entry -- microseconds until an entry enters that waits for its time
local is_sweeping = false -- there may be more that others hold and are silent about
if redis.call('EXISTS', TOPIC_WAITING) == 1 then
  next_entry = seldom().let_in(delayed_of_topic(), STREAM)
end
if known[3] or now - (known[2] or 0) >= lease_us / 2 then
  known[1], is_sweeping = seldom().take_over_silent(known[3] or '-', known[1])
  clock = now -- it may have gone on
  if known[2] then -- not at once: other groups may be about to be made
    claim.has_acked = true -- groups of other programs may have, and free nothing
  end
end
-- @end
local any_counts = redis.call('EXISTS', COUNTS) == 1
local is_isolating = any_counts and suspects ~= 'with' and crash_limit > 1
if redis.call('EXISTS', EXPIRES) == 1 then
  seldom().expire_some(keys, now, 0)
end
if interval > 0 or in_flight >= 0 then
  allowed, needs_lease_to_end = seldom().room()
end

-- Messages of one size, with the same flags, share one lease text, most of a batch; with keys, all but the key.
local deadline = string.format('%.0f', now + lease_us)
local lease_texts, lease_tails = {}, {}

local function lease_text(size, flags, priority, key)
  local kind = size * 65536 + flags * 256 + priority
  local text = lease_texts[kind]
  if not text then
    text = key and lease_head(now, size, flags, priority) or written_lease(now, size, flags, priority, consumer)
    lease_texts[kind] = text
  end
  if not key then
    return text
  end
  local tail = lease_tails[#key]
  if not tail then
    tail = lease_tail(#key, consumer)
    lease_tails[#key] = tail
  end
  return text .. struct.pack('<Hc0', #key, key) .. tail
end

-- The hot path: whatever can be done once a batch is not done once a message.
local function take_from(waiting, ahead)
  local wanted = allowed - #ids
  local looked_at = math.min(wanted + ahead, PARKED_A_CALL - parked) -- all of them may have to be parked
  local due = due_in(waiting, 0, looked_at)
  local candidates = is_isolating and seldom().without_suspects(waiting, due, looked_at) or due
  if meta[4] then -- a large record was stored: a thousand may not fit
    candidates = seldom().that_fit(candidates)
  end
  if #candidates == 0 then
    return
  end
  local found, lanes = redis.call('HMGET', MSGS, unpack(candidates)), nil
  if is_keyed then
    candidates, found, lanes = seldom().in_turn(waiting, candidates, found, wanted)
    if #candidates == 0 then
      return
    end
  end
  local trouble = any_counts and redis.call('HMGET', COUNTS, unpack(candidates))
  local byte, n, first = string.byte, #ids, #ids + 1
  for i, id in ipairs(candidates) do
    local record = found[i]
    local flags, priority = byte(record or '', FLAGS_AT, PRIORITY_AT)
    local key, is_parked = lanes and lanes[i], false -- whoever has a lane is sound
    if not lanes and priority and flags % (2 * FLAG_KEY) >= FLAG_KEY then
      key, is_parked = seldom().in_its_turn(waiting, id, record)
    end
    if is_parked then
      is_full = true -- there may be others
    elseif not priority or priority > 9 or (flags ~= 0 and not key and seldom().has_flaw(record)) then
      seldom().bury_flawed(id, record, waiting)
    elseif flags % 2 == FLAG_TTL and seldom().expiry_of(record) <= now then
      seldom().drop_expired(keys, id, record, now)
    else
      if flags % 2 == FLAG_TTL then
        redis.call('ZREM', EXPIRES, id)
      end
      n = n + 1
      if trouble then
        counted[n] = trouble[i] or ''
        flags = trouble[i] and flags + FLAG_TROUBLED or flags
      end
      ids[n], records[n] = id, record
      -- @only group
      again[#again + 1] = id
      -- @end
      leased[2 * n - 1], leased[2 * n] = deadline, id
      leases[2 * n - 1], leases[2 * n] = id, lease_text(#record, flags, priority, key)
      bytes = bytes + #record
    end
  end
  if n - first + 1 < #candidates and #due == looked_at then
    is_full = true -- some could not be handed out: there may be more of this priority
  end
  if n >= first then
    local due_by_counts = trouble and seldom().due_by_counts(counted[first])
    lateness = math.max(lateness, now - (due_by_counts or struct.unpack('<d', records[first], DUE_AT)))
  end
  redis.call('ZREM', waiting, unpack(candidates)) -- those that were skipped are gone from there already
end

-- Takes from one priority. What is parked makes room for a look at what is behind it.
local function take_in_turn(waiting)
  local ahead = 0
  repeat
    local parked_before = parked
    take_from(waiting, ahead)
    if parked == parked_before then
      return
    end
    -- With half of what was wanted another look is not worth it: there may be more, and that is what the answer says.
    is_full = is_full or parked >= PARKED_A_CALL or 2 * #ids >= allowed
    ahead = math.min(math.max(2 * ahead, LOOKED_AHEAD), MOST_LOOKED_AHEAD) -- a long lane is parked in few steps
  until is_full
end

if not is_paused then
  for digit in string.gmatch(in_use, '%d') do
    if #ids < allowed and not is_full then
      take_in_turn(keys.waiting[tonumber(digit)])
    end
  end
end
-- @only group
-- @include lib/reading_entries.lua
-- @end
-- @only freeing
if claim.has_acked then
  free_acked(STREAM) -- once, at the end: it looks at all groups of the stream
end
-- @end
-- A lane that waits for a dead letter goes on when that is kept no longer.
if buried > 0 or (keys.blocks and is_keyed) then
  local kept = seldom().bounds_of(dead_kept.count, dead_kept.age, dead_kept.bytes)
  seldom().trim(keys, DEAD, 'dead_bytes', 'trimmed', kept, now, buried)
end

local is_limited, free_at, stays_limited = false, 0, false
if interval > 0 or in_flight >= 0 then
  is_limited, free_at, stays_limited = seldom().kept_back()
end
if was_limited and not stays_limited then
  redis.call('HDEL', META, 'limited')
end

-- Schedules whose slot has come: when the next one is, only a client can say. What nobody can fire stays where it is,
-- so of more than a call names, every call names others: the clock says where it begins, and behind the last comes the
-- first. A caller that could fire none of them looks again soon.
local schedules = {}
if slot and slot <= now then
  local count = redis.call('ZCOUNT', SLOTS, '-inf', now)
  local named = math.min(count, SCHEDULES_A_CALL)
  local from = count > named and now % count or 0
  for at = from, from + named - 1 do
    local name = redis.call('ZRANGE', SLOTS, at % count, at % count)[1]
    schedules[#schedules + 1] = name
    schedules[#schedules + 1] = redis.call('HGET', SCHEDULES, name) or ''
  end
  slot = tonumber(
    redis.call('ZRANGEBYSCORE', SLOTS, string.format('(%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  )
  if count > named then
    slot = math.min(slot or math.huge, now + LOOK_AGAIN_US)
  end
end

-- Of what waits, the first to come as { id, due }, or {}. What is due and was passed over is not to come.
local function first_to_come(waiting)
  if has_passed_over then
    return redis.call('ZRANGEBYSCORE', waiting, string.format('(%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  end
  return redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')
end

-- Microseconds to the moment at which a claim may find more.
local function until_next()
  -- An empty-handed caller may have a suspect that came behind what could not be delivered.
  local may_have_it_now = has_passed_over and suspects == 'alone' and #ids == 0
  local may_find_more = #ids == limit or is_full or may_have_it_now
  if #ran_out == 2 * RECLAIMED_A_CALL or (may_find_more and not is_limited) then
    return 0
  end
  -- @only group
  if is_sweeping then
    return 0
  end
  -- @end
  local _, first_deadline = first_leased(LEASED)
  local next_at = math.min(first_deadline or math.huge, slot or math.huge)
  -- @only group
  next_at = math.min(next_at, next_entry and now + next_entry or math.huge)
  -- @end
  if is_limited then
    next_at = math.min(next_at, free_at)
  elseif not is_paused then
    for digit in string.gmatch(in_use, '%d') do
      local head = first_to_come(keys.waiting[tonumber(digit)])
      if #head > 0 then
        next_at = math.min(next_at, tonumber(head[2]))
      end
    end
  end
  if is_keyed and redis.call('EXISTS', PARKED) == 1 then
    -- The end of a message's ttl may let another of its lane in.
    local expiry = redis.call('ZRANGE', EXPIRES, 0, 0, 'WITHSCORES')[2]
    next_at = math.min(next_at, tonumber(expiry) or math.huge)
  end
  if next_at == math.huge then
    return -1
  end
  return math.max(next_at - now, 0)
end

if #ids > 0 then
  add_leased(LEASED, leased)
  redis.call('HSET', LEASES, unpack(leases))
  -- The fence is the time of the claim: it grows with each one, whatever happens to queue or server.
  redis.call('HSET', META, 'clock', now, 'lateness', lateness, 'delivered', (meta[5] or 0) + #ids)
elseif #ran_out > 0 or buried > 0 then
  remember(META, now)
end
-- @only group
if clock > now then
  remember(META, clock)
end
-- @end

local state = is_paused and PAUSED or has_passed_over and PASSED_OVER or is_limited and LIMITED or OPEN
local next_us, fence = until_next(), #ids > 0 and now or 0
-- @only group
-- @include lib/groups_of_stream.lua
local position = {}
if state == PASSED_OVER and #reclaimed > 0 then
  leave_token(WAKE) -- for a consumer that holds nothing: once, all others that pass it over would hear it, too
end
if next_us ~= 0 and after ~= 'leave' then
  local group = find_group(STREAM, GROUP)
  position = { group and group.last or '0-0', last_ring(TOPIC_WAKE), last_ring(WAKE) }
end
-- @end
-- @only queue
local is_watching = next_us ~= 0 and (after == 'stay' or (after == 'watch' and #ids == 0))
if state == PASSED_OVER then
  leave_token(WAKE) -- for a consumer that holds nothing
elseif is_watching then
  redis.call('DEL', WAKE) -- this consumer has seen everything and watches from now on
elseif #ids > 0 or next_us == 0 or (after == 'pass' and next_us > 0 and state ~= PAUSED) then
  leave_token(WAKE) -- somebody else must watch what waits and what is leased
else
  take_token_if_empty(WAKE, MSGS, META)
end
-- @end
answer({ fence, ids }) -- also of nothing, or a late copy would take messages for nobody
-- @only group
do
  return { state, now, next_us, fence, ids, records, counted, reclaimed, schedules, position }
end
-- @end
-- @only queue
return { state, now, next_us, fence, ids, records, counted, reclaimed, schedules }
-- @end
