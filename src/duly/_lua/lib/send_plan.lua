-- Sends that need checks against stored messages: bounds, ttl, dedup, ids chosen by the caller.
--
-- A plan writes nothing. So a script may plan for several queues, check whether one refuses, and then carry out all
-- plans or none.

-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/waiting.lua
-- @include lib/leased.lua
-- @include lib/wake.lua
-- @include lib/forget.lua
-- @include lib/expire.lua
-- @include lib/place.lua
-- @include lib/row_bytes.lua
-- @include lib/store.lua
-- @include lib/dedup_windows.lua
-- @include lib/points.lua
-- @include lib/backlog.lua

local DUPLICATE, FULL, REPLACED = 1, 2, 3
local EXTRA_DROPPED = 100 -- in addition to the number added, so that a lowered bound is reached

-- Returns the keys of a queue that begin at a position of KEYS, and the position after them.
-- @keys sending_keys of send_checked

-- Removes a message from `waiting*` or `parked`, at `key` and `member` if they are known.
local function leave_waiting(plan, id, record, key, member)
  local is_removed = key and redis.call('ZREM', key, member) == 1
  if not is_removed and not flaw_of(record) then
    stop_waiting(plan.keys, id, record) -- it may have been given its lane since, and have moved
  end
  if leave_lane(plan.keys, id, record, plan.now) then
    leave_wake_token(plan.keys.wake)
  end
end

-- Whether a message with this place may be replaced or dropped.
local function is_waiting(place)
  return place == 'waiting' or place == 'parked'
end

-- Adds an expired message to the plan. It is not dropped yet, but counts as gone and holds no room.
local function add_expired(plan, id, record)
  if plan.expired[id] then
    return
  end
  plan.expired[id] = record
  plan.expired_count = plan.expired_count + 1
  plan.bytes_left = plan.bytes_left + #record
  if is_waiting(place_of(plan.keys, id, record)) then
    plan.length_left = plan.length_left + 1
  end
end

-- Computes the room that is left, in messages and bytes. Expired messages hold none.
local function measure_room(plan)
  local keys, bounds = plan.keys, plan.bounds
  if bounds.length >= 0 then
    plan.length_left = bounds.length - count_leased(keys.leased) - redis.call('ZCARD', keys.parked)
    for _, place in ipairs(places_of_digits(keys.waiting, plan.meta.priorities)) do
      plan.length_left = plan.length_left - redis.call('ZCARD', place.key)
    end
  end
  if bounds.bytes >= 0 then
    plan.bytes_left = bounds.bytes - tonumber(redis.call('HGET', keys.meta, 'bytes') or 0)
  end
  local most = plan.count + EXPIRED_PER_CALL
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', keys.expires, '-inf', plan.now, 'LIMIT', 0, most)) do
    local record = redis.call('HGET', keys.msgs, id)
    if flaw_of(record) then -- a claim will bury it
      table.insert(plan.unwatched, id)
    else
      add_expired(plan, id, record)
    end
  end
end

local function is_expired(plan, id, place, record)
  if
    not is_waiting(place)
    or flaw_of(record)
    or not has(flags_of(record), FLAG_TTL)
    or expiry_of(record) > plan.now
  then
    return false
  end
  add_expired(plan, id, record)
  return true
end

local function first_with(plan, value)
  local keys = plan.keys
  if plan.dedup_here[value] then
    return plan.dedup_here[value]
  end
  local id = redis.call('HGET', keys.dedup, value)
  local ends = id and redis.call('ZSCORE', keys.dedup_ends, value)
  if not ends or tonumber(ends) <= plan.now then
    return nil
  end
  local record = redis.call('HGET', keys.msgs, id)
  return not is_expired(plan, id, place_of(keys, id, record), record) and id or nil
end

local function waiting_record(keys, id)
  local record = redis.call('HGET', keys.msgs, id)
  return not flaw_of(record) and is_waiting(place_of(keys, id, record)) and record or nil
end

-- Whether the first message with a dedup value still waits. Another message may have its id by now.
local function still_waits_with(keys, id, value)
  local record = waiting_record(keys, id)
  return record and options_of(record).dedup == value
end

-- Whether a message with an id chosen by the caller is in the queue. Finished and expired messages do not count, nor
-- does the one that the same call finishes.
local function is_in_queue(plan, id)
  if id == plan.leaving then
    return false
  end
  local record = redis.call('HGET', plan.keys.msgs, id)
  local place = place_of(plan.keys, id, record)
  return place and place ~= 'done' and not is_expired(plan, id, place, record)
end

-- Returns the outcome for a known message, nil for a new one; and the id that the outcome is about.
local function outcome_of(plan, id, flags, options)
  local first = options.dedup and first_with(plan, options.dedup)
  if first and not has(flags, FLAG_REPLACE) then
    return DUPLICATE, first
  end
  if first and (plan.dedup_here[options.dedup] or still_waits_with(plan.keys, first, options.dedup)) then
    return REPLACED, first
  end
  if has(flags, FLAG_OWN_ID) and (plan.index_of[id] or is_in_queue(plan, id)) then
    return DUPLICATE, id
  end
  return nil, id
end

local function can_ever_fit(bounds, size)
  return bounds.length ~= 0 and (bounds.bytes < 0 or size <= bounds.bytes)
end

local function has_no_room(plan, size)
  if plan.length_left >= 1 and plan.bytes_left >= size then
    return false
  end
  return plan.bounds.on_full ~= 'drop' or not can_ever_fit(plan.bounds, size)
end

local function accept(plan, at, id, size)
  plan.offsets[#plan.offsets + 1] = at
  plan.index_of[id] = #plan.offsets
  plan.size_of[id] = size
  plan.length_left, plan.bytes_left = plan.length_left - 1, plan.bytes_left - size
end

-- Lets a message replace one that waits: one of this call, or a stored one.
local function accept_replacement(plan, at, id, size)
  plan.renamed[at] = id
  if plan.index_of[id] then
    plan.bytes_left = plan.bytes_left + plan.size_of[id] - size
    plan.offsets[plan.index_of[id]] = at
    plan.size_of[id] = size
    return
  end
  local record = waiting_record(plan.keys, id)
  table.insert(plan.replaced, { id = id, record = record })
  plan.length_left, plan.bytes_left = plan.length_left + 1, plan.bytes_left + #record
  accept(plan, at, id, size)
end

-- Decides about the message whose row begins at `at`. Earlier messages of the call count as stored.
local function plan_message(plan, at)
  local part = messages.part(at)
  local flags, options = string.byte(part, 2), options_of_part(part)
  local outcome, id = outcome_of(plan, messages.id(at), flags, options)
  local size = STAMP_SIZE + #part
  if outcome == REPLACED then
    accept_replacement(plan, at, id, size)
  elseif not outcome and has_no_room(plan, size) then
    outcome = FULL
    plan.is_full = true
  elseif not outcome then
    accept(plan, at, id, size)
  end
  if options.dedup and (not outcome or outcome == REPLACED) then
    plan.dedup_here[options.dedup] = id
  end
  if outcome then
    local position = (at - plan.first) / messages.stride + 1
    table.insert(plan.outcomes, { position = position, outcome = outcome, id = id })
  end
end

-- Returns the first members of `parked` as rows of id and due. The due time is infinite, because parked messages of
-- different lanes have no common order: they come after all that wait.
local function parked_rows(keys, last, members)
  local rows = {}
  for _, member in ipairs(redis.call('ZRANGE', keys.parked, 0, last)) do
    local id = id_of_parked(member)
    members[id] = member
    rows[#rows + 1] = id
    rows[#rows + 1] = 'inf'
  end
  return rows
end

-- Returns the waiting messages to drop so that the new ones fit, the oldest due time first; nil: that is not enough.
-- The number is bounded: after `max_length` was lowered by much, several sends share the work.
local function oldest_to_drop(plan)
  local heads, dropped, members, keys = {}, {}, {}, plan.keys
  local most = plan.count + EXTRA_DROPPED
  local last = most + plan.count + plan.expired_count - 1 -- some are skipped: they are replaced, or expired
  for i, place in ipairs(places_of_digits(keys.waiting, plan.meta.priorities)) do
    heads[i] = { key = place.key, rows = redis.call('ZRANGE', place.key, 0, last, 'WITHSCORES'), at = 1 }
  end
  heads[#heads + 1] = { key = keys.parked, rows = parked_rows(keys, last, members), at = 1 }
  while (plan.length_left < 0 or plan.bytes_left < 0) and #dropped < most do
    local oldest
    for _, head in ipairs(heads) do
      while plan.index_of[head.rows[head.at]] or plan.expired[head.rows[head.at]] do
        head.at = head.at + 2
      end
      local due = tonumber(head.rows[head.at + 1])
      if due and (not oldest or due < tonumber(oldest.rows[oldest.at + 1])) then
        oldest = head
      end
    end
    if not oldest then
      return nil
    end
    local id = oldest.rows[oldest.at]
    local record = redis.call('HGET', keys.msgs, id)
    local size = record and #record or 0
    oldest.at = oldest.at + 2
    plan.length_left, plan.bytes_left = plan.length_left + 1, plan.bytes_left + size
    table.insert(dropped, { id = id, key = oldest.key, member = members[id] or id, size = size, record = record })
  end
  return dropped
end

-- Plans the messages whose rows are ARGV[first] to ARGV[last]. `leaving`, { id, size }, is a held message that the same
-- call finishes: its room and its id are free. A plan with `is_refused` must not be carried out.
local function plan_sends(keys, first, last, bounds, leaving)
  local meta = read_meta(keys.meta)
  local now, ahead = tick(meta.clock)
  local plan = {
    keys = keys,
    meta = meta,
    now = now,
    ahead = ahead,
    first = first,
    count = (last - first + 1) / messages.stride,
    bounds = bounds,
    leaving = leaving and leaving.id,
    length_left = math.huge,
    bytes_left = math.huge,
    offsets = {},
    renamed = {},
    index_of = {},
    size_of = {},
    dedup_here = {},
    outcomes = {},
    replaced = {},
    expired = {},
    expired_count = 0,
    unwatched = {},
    dropped = {},
  }
  if bounds.length >= 0 or bounds.bytes >= 0 then
    measure_room(plan)
    if leaving then
      plan.length_left, plan.bytes_left = plan.length_left + 1, plan.bytes_left + leaving.size
    end
  end
  for at = first, last, messages.stride do
    plan_message(plan, at)
  end
  if bounds.on_full == 'all' then
    plan.is_refused = plan.is_full
  elseif bounds.on_full == 'drop' then
    plan.dropped = oldest_to_drop(plan)
    plan.is_refused = not plan.dropped
  end
  return plan
end

-- Drops the expired messages of a plan. A full server refuses the first write.
local function sweep(plan)
  local keys = plan.keys
  store_clock(keys.meta, plan.now)
  for _, id in ipairs(plan.unwatched) do
    redis.call('ZREM', keys.expires, id)
  end
  for id, record in pairs(plan.expired) do
    drop_expired(keys, id, record, plan.now)
  end
end

-- A finished message whose id is used again makes room for the new one. The caller calls store_row_bytes().
local function forget_done(keys, id)
  if redis.call('ZSCORE', keys.done, id) then
    add_row_bytes(keys, 'done', 0 - redis.call('HSTRLEN', keys.why, id))
    redis.call('ZREM', keys.done, id)
    redis.call('HINCRBY', keys.meta, 'done_bytes', 0 - redis.call('HSTRLEN', keys.msgs, id))
    redis.call('HINCRBY', keys.meta, 'done_trimmed', 1)
    redis.call('HDEL', keys.why, id)
  end
end

local function make_room(plan)
  local keys = plan.keys
  for _, oldest in ipairs(plan.dropped) do
    leave_waiting(plan, oldest.id, oldest.record, oldest.key, oldest.member)
    free_dedup(keys, oldest.id, oldest.record)
    forget(keys, oldest.id)
    redis.call('HINCRBY', keys.meta, 'bytes', 0 - oldest.size)
    redis.call('HINCRBY', keys.meta, 'dropped', 1)
  end
  for _, old in ipairs(plan.replaced) do
    leave_waiting(plan, old.id, old.record)
    forget(keys, old.id)
    redis.call('HINCRBY', keys.meta, 'bytes', 0 - #old.record)
  end
  for id in pairs(plan.index_of) do
    forget_done(keys, id)
  end
  store_row_bytes(keys)
end

local function store_accepted(plan)
  local keys, windows = plan.keys, 0
  store(keys, plan.meta, plan.now, plan.ahead, plan.offsets, plan.renamed, function(id, record)
    local options = options_of(record)
    if options.ttl then
      redis.call('ZADD', keys.expires, expiry_of(record), id)
    end
    if options.dedup then
      open_window(keys, plan.now, id, options.dedup, options.dedup_for)
      windows = windows + 1
    end
  end)
  if #plan.offsets > #plan.replaced then
    redis.call('HINCRBY', keys.meta, 'sent', #plan.offsets - #plan.replaced)
  end
  if windows > 0 then
    close_windows(keys, plan.now, 2 * windows)
  end
end

-- The first send of a minute takes a point of the history. Delayed publishes of a topic have no history.
local function note_minute(plan)
  local keys, ends = plan.keys, plan.meta.point
  if is_point_due(ends, plan.now) and not string.find(keys.meta, '{@', 1, true) then
    take_point(keys.history, keys.meta, plan.now, ends, backlog(keys, plan.now))
  end
end

-- Carries out a plan. A full server refuses the first write.
local function carry_out(plan)
  sweep(plan)
  note_minute(plan)
  make_room(plan)
  if #plan.offsets > 0 then
    store_accepted(plan)
  end
  local counted = { 0, 0, 0 }
  for _, each in ipairs(plan.outcomes) do
    counted[each.outcome] = counted[each.outcome] + 1
  end
  if counted[DUPLICATE] > 0 then
    redis.call('HINCRBY', plan.keys.meta, 'duplicates', counted[DUPLICATE])
  end
  if counted[REPLACED] > 0 then
    redis.call('HINCRBY', plan.keys.meta, 'replaced', counted[REPLACED])
  end
end

-- Adds `position, outcome, id` to a reply for each message that was not stored as new. `before` messages of the call
-- belong to earlier plans.
local function add_outcomes(reply, plan, before)
  for _, each in ipairs(plan.outcomes) do
    table.insert(reply, before + each.position)
    table.insert(reply, each.outcome)
    table.insert(reply, each.id)
  end
end

-- The same for a plan that is refused: duplicates stay duplicates, and all other messages found no room.
local function add_refusals(reply, plan)
  local known = {}
  for _, each in ipairs(plan.outcomes) do
    if each.outcome == DUPLICATE and not plan.index_of[each.id] then
      known[each.position] = each.id
    end
  end
  for position = 1, plan.count do
    local at = plan.first + (position - 1) * messages.stride
    table.insert(reply, position)
    table.insert(reply, known[position] and DUPLICATE or FULL)
    table.insert(reply, known[position] or messages.id(at))
  end
end
