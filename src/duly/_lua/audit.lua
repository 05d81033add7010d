--[[
audit -- look at one step of one key of the queue: is each id in exactly one place, with all it needs?

Of a topic, it looks at the store of those publishes that wait for their time.

Online: the ids of a step are judged at one moment, so messages that move meanwhile raise no alarm.

KEYS     msgs, leased, leases, counts, why, expires, dead, done, dedup, dedup_ends, lanes, parked, schedules,
         slots, awaited, ends, wake, meta, waiting*
-- @only topic
         stream
-- @end
ARGV     digits  text
         repair  flag    1: mend what is found | 0: only look
         source  text    the name of the key to look at, waiting0 ... waiting9; keys: whether they can be read at all
         cursor  text    where the step before ended; 0 begins
RETURNS  { cursor, checked, live_bytes, dead_bytes, done_bytes, id, fault ... }; cursor 0: the key is through
KEEPS    I1 I2 I3 I7 I9: a repair loses no body, hands nothing out early, and may be repeated.
]]
-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/lease.lua
-- @include lib/leased.lua
-- @include lib/audit/rows.lua
-- @include lib/waiting.lua
-- @include lib/wake.lua
-- @include lib/lanes.lua
-- @include lib/bury.lua
-- @include lib/windows.lua
-- @include lib/drain.lua
local IDS_A_CALL, LET_WAIT_A_CALL, LET_WAIT_A_LANE = 50, 100, 2
local LONGEST_US = 316224000000000 -- ten years, all of them leap years: no client asks for a longer lease or window
local ENDLESS_LEASE_US = 60000000 -- what is left of a lease that has no end: its holder may be at work
local now
local reply = { '0', 0, 0, 0, 0 }

local function fault(id, what, mend)
  reply[#reply + 1] = id
  reply[#reply + 1] = what
  if repair then
    mend()
    redis.pcall('HINCRBY', keys.meta, 'repairs', 1) -- refused where `meta` is overwritten, and it is mended, too
  end
end

-- @include lib/audit/store.lua
-- @include lib/audit/hints.lua
-- @include lib/audit/schedules.lua

local function end_lease(id)
  redis.call('HDEL', keys.leases, id)
  -- @only group
  ack_entries(group_of(keys.leased), { id })
  -- @end
end

-- Its own place: a retry or a defer may have given it a later one, which must not be forgotten (I3).
local function own_due(id, record)
  local due = sound_counts(keys.counts, id)[DUE]
  return due > 0 and due or due_of(record)
end

local function wait_again(id, record)
  redis.call('ZADD', keys.waiting[store.waits_under(record)], own_due(id, record), id)
  local in_use = redis.call('HGET', keys.meta, 'priorities') or '0'
  redis.call('HSET', keys.meta, 'priorities', with_priority(in_use, store.waits_under(record)))
  if has(flags_of(record), FLAG_TTL) then
    redis.call('ZADD', keys.expires, expiry_of(record), id)
  end
  leave_token(keys.wake)
end

-- Finishing comes after the message was due, and has passed.
local function is_time_of_finish(score, id, record)
  return score > own_due(id, record) and score <= now
end

-- Where the rows of a message say that it is, while its only place is one that they rule out: it was moved there. It
-- has the score of its end, or none that anything has there, and is not at work; or it is dead without an end, and
-- leased, or has the time that it waits for. nil: they do not say.
local function told_place(id, record, place)
  local over, at = place_when_over(id)
  local lease, own = redis.call('HGET', keys.leases, id), own_due(id, record)
  if over and over ~= place.name and not lease and redis.call('HEXISTS', keys.counts, id) == 0 then
    local is_of_no_time = place.name == 'done' and not is_time_of_finish(place.score, id, record)
    if place.score == at or is_of_no_time or (place.name == 'misplaced' and place.score ~= own) then
      return { name = over, key = keys[over], member = id, score = at }
    end
  elseif not over and place.name == 'dead' and lease and is_lease(lease) then
    return { name = 'leased', key = keys.leased, member = id, score = now + ENDLESS_LEASE_US }
  elseif not over and place.name == 'dead' and place.score == own then
    return { name = 'waiting', key = keys.waiting[store.waits_under(record)], member = id, score = own }
  end
  return nil
end

-- The places of an id, in the order in which one is kept when there are several: where it ended, if its past says so;
-- where its rows say that it is; a lease that is out, the priority that the record names, its lane, other priorities,
-- a lease of nobody, dead, done.
local function places_of(id, record)
  local places = {}
  local function look(name, key, member)
    local score = redis.call('ZSCORE', key, member or id)
    if score and not (name == 'leased' and id == PILLAR) then
      places[#places + 1] = { name = name, key = key, member = member or id, score = tonumber(score) }
    end
  end
  local own = not flaw_of(record) and store.waits_under(record)
  local is_held = redis.call('HEXISTS', keys.leases, id) == 1
  if is_held then
    look('leased', keys.leased)
  end
  if own then
    look('waiting', keys.waiting[own])
    local key = key_of(record)
    if key then
      look('parked', keys.parked, parked_member(key, record, id))
    end
  end
  for priority, key in pairs(keys.waiting) do
    if priority ~= own then
      look('misplaced', key)
    end
  end
  if not is_held then
    look('leased', keys.leased)
  end
  look('dead', keys.dead)
  look('done', keys.done)
  local over = #places > 1 and place_when_over(id)
  for at, place in ipairs(places) do
    if place.name == over then
      table.insert(places, 1, table.remove(places, at))
      return places
    end
  end
  local told = own and places[1] and told_place(id, record, places[1])
  if told then
    table.insert(places, 1, told)
  end
  return places
end

local function remove_rows(id)
  redis.call('HDEL', keys.leases, id)
  redis.call('HDEL', keys.counts, id)
  redis.call('HDEL', keys.why, id)
  redis.call('ZREM', keys.expires, id)
end

local function bury_flawed(id, record, size)
  local counted, past = sound_counts(keys.counts, id), sound_past(keys.why, id)
  bury(keys, id, record, size, flaw_of(record) or 'damaged', counted, past, now)
  remember(keys.meta, now)
end

local function remove_from(place, id)
  if place.name == 'leased' then
    remove_leased(place.key, { id })
  else
    redis.call('ZREM', place.key, place.member)
  end
end

-- Of a sound message that is not over; `place` is nil when it has none.
local function check_foreign_id(id, record, place)
  fault(id, 'an id that is not text', function()
    if place then
      remove_from(place, id)
    end
    end_lease(id)
    bury_flawed(id, record, #record)
  end)
end

local function is_dead_as(id, reason)
  local row = sound_why(keys.why, id)
  return row and row[1] == reason
end

-- @only group
-- @include lib/audit/entries.lua
-- False: it is as with any message that has lost its body.
local function check_entry(id, place)
  local record = not is_dead_as(id, 'body lost') and record_in_stream(id, place)
  if is_unread(id) then
    fault(id, 'place of an entry that was not read yet', function()
      remove_from(place, id)
      remove_rows(id)
    end)
    return true
  elseif record then
    fault(id, 'a body that only the stream has', function()
      redis.call('HSET', keys.msgs, id, record)
      -- Nobody waits for what is dead because it could not be read: it could not say which lane it had.
      if is_dead_as(id, 'damaged') and leave_lane(keys, id, record, now) then
        leave_token(keys.wake)
      end
    end)
  end
  return record
end

-- The same, of one whose body is there and cannot be read; `place` is nil when it has none.
local function check_overwritten(id, place)
  if place then
    return check_entry(id, place)
  elseif not (is_unread(id) and fields_in_stream(id)) then
    return false
  end
  fault(id, 'body of an entry that was not read yet', function()
    redis.call('HDEL', keys.msgs, id)
    remove_rows(id)
  end)
  return true
end
-- @end

local function check_nowhere(id, record)
  -- @only group
  if record and flaw_of(record) and check_overwritten(id, parked_as_in_stream(id)) then
    return
  end
  -- @end
  if record and store.is_flawed(record) then
    fault(id, 'damaged body without a place', function()
      end_lease(id)
      bury_flawed(id, record, #record)
    end)
  elseif record and store.is_nameless(id) and not place_when_over(id) then
    check_foreign_id(id, record)
  elseif record then
    fault(id, 'body without a place', function()
      local place, at = place_when_over(id)
      end_lease(id)
      if place then
        redis.call('ZADD', keys[place], at, id)
      else
        wait_again(id, record)
      end
    end)
  elseif source ~= 'msgs' then
    fault(id, 'row in ' .. source .. ' of no message', function()
      remove_rows(id)
    end)
  end
end

local function check_bodiless(id, place)
  -- @only group
  if check_entry(id, place) then
    return
  end
  -- @end
  if place.name == 'done' then
    fault(id, 'finished without a body', function()
      redis.call('ZREM', place.key, id)
      remove_rows(id)
    end)
  elseif place.name == 'dead' and not is_dead_as(id, 'body lost') then
    fault(id, 'dead without a body', function()
      keep_end(keys.why, id, 'body lost', read_counts(nil), sound_past(keys.why, id), '')
    end)
  elseif place.name ~= 'dead' then
    fault(id, 'place without a body', function()
      remove_from(place, id)
      redis.call('HDEL', keys.leases, id)
      bury_flawed(id, nil, 0)
    end)
  end
end

-- A lease repeats what a settle must know of the record: its lane is handed on by what the lease says.
local function is_lease_of(text, record)
  if not is_lease(text) then
    return false
  end
  local lease = read_lease(text)
  return lease.priority == priority_of(record) and lease.key == key_of(record)
end

-- False: it is not leased any more.
local function check_lease(id, record)
  local text = redis.call('HGET', keys.leases, id)
  if text and is_lease_of(text, record) then
    return true
  end
  fault(id, text and 'a lease that cannot be read' or 'leased to nobody', function()
    remove_leased(keys.leased, { id })
    redis.call('HDEL', keys.leases, id)
    wait_again(id, record)
  end)
  return false
end

-- Whether an id that should be in `expires` is there, at its time, and no other: whatever is there is dropped then.
local function check_expiry(id, record, is_waiting)
  local watched = redis.call('ZSCORE', keys.expires, id)
  local has_ttl = has(flags_of(record), FLAG_TTL)
  local function watch()
    redis.call('ZADD', keys.expires, expiry_of(record), id)
  end
  local function stop_watching()
    redis.call('ZREM', keys.expires, id)
  end
  if is_waiting and has_ttl and not watched then
    fault(id, 'a ttl that nobody watches', watch)
  elseif is_waiting and has_ttl and tonumber(watched) ~= expiry_of(record) then
    fault(id, 'a ttl that is watched at a wrong time', watch)
  elseif watched and not is_waiting then
    fault(id, 'in expires, but not waiting', stop_watching)
  elseif watched and not has_ttl then
    fault(id, 'in expires, but without a ttl', stop_watching)
  end
end

-- Whether `counts` knows less of an id than its timeline tells: then it does not know the time of a retry either.
local function knows_too_little(id, stored)
  local timeline = sound_past(keys.why, id).timeline
  return #timeline > 0 and tells_less(read_counts(stored), recounted(timeline))
end

-- What is handed out next waits since it was let in; everything else for the time that was asked for. Without a true
-- row in `counts` nobody knows which time that is, while `why` says that there was one.
local function check_time(id, record, place, owns_lane)
  local due, own = due_of(record), own_due(id, record)
  local is_let_in = owns_lane and place.score <= now and (place.score >= due or not (due >= 0 and due < NO_TIME))
  local stored = redis.call('HGET', keys.counts, id)
  local is_known = stored and is_counts(stored) and not knows_too_little(id, stored)
  local is_uncounted = not is_known and redis.call('HEXISTS', keys.why, id) == 1
  local is_never = place.score >= NO_TIME and own < NO_TIME
  if place.score == own or is_let_in or (is_uncounted and place.score >= due and not is_never) then
    return
  end
  -- Either of the two may be somebody else's: none of them is to come early (I3).
  if is_known and place.score > own and place.score <= now + LONGEST_US then
    return fault(id, 'waits for another time than it counts', function()
      local counted = read_counts(stored)
      counted[DUE] = math.ceil(place.score)
      keep_counts(keys.counts, id, counted)
      redis.call('ZADD', place.key, counted[DUE], id)
    end)
  end
  fault(id, 'waits for a wrong time', function()
    redis.call('ZADD', place.key, own, id)
    leave_token(keys.wake)
  end)
end

-- Whether a lane may not be taken from an id: it is in work, or waited for.
local function is_in_its_right(id)
  local record = redis.call('HGET', keys.msgs, id)
  local place = places_of(id, record)[1]
  if not place or flaw_of(record) then
    return false
  end
  return place.name == 'leased' or place.name == 'dead' or has_begun(sound_counts(keys.counts, id))
end

-- A message that is out, or comes back, has its lane, or another one of its key would overtake it (I7).
local function check_own_lane(id, key, lane)
  local owner = lane and string.sub(lane, 2)
  if owner == id or (owner and is_in_its_right(owner)) then
    return
  end
  fault(id, 'in work without its lane', function()
    redis.call('HSET', keys.lanes, LANES_PILLAR_FIELD, LANES_PILLAR, key, SOMEBODY_BEHIND .. id)
  end)
end

local function check_leased(id, record, place, key, lane)
  if not check_lease(id, record) then
    return
  end
  if place.score > now + LONGEST_US then
    fault(id, 'a lease without an end', function()
      redis.call('ZADD', keys.leased, now + ENDLESS_LEASE_US, id)
    end)
  end
  if key then
    check_own_lane(id, key, lane)
  end
  check_expiry(id, record, false)
end

-- Of one that waits or is parked.
local function check_unleased(id, record, place, key, lane)
  if redis.call('HEXISTS', keys.leases, id) == 1 then
    fault(id, 'a lease, but not leased', function()
      end_lease(id)
    end)
  end
  if place.name == 'waiting' then
    check_time(id, record, place, lane and string.sub(lane, 2) == id)
    if key and has_begun(sound_counts(keys.counts, id)) then
      check_own_lane(id, key, lane)
    end
  end
  check_expiry(id, record, true)
end

local function check_live(id, record, place)
  local key = key_of(record)
  local lane = key and redis.call('HGET', keys.lanes, key)
  if place.name == 'leased' then
    check_leased(id, record, place, key, lane)
  else
    check_unleased(id, record, place, key, lane)
  end
end

-- Whether nobody has finished what is in `done`: nothing says so, and its score is no time of a finish, as when it was
-- taken there from `waiting*` or `leased`. Or it is next in its lane, which one that is finished has handed on.
local function is_unfinished(id, record, place)
  local row = sound_why(keys.why, id)
  local last = row and row[8][#row[8]]
  if place.name ~= 'done' or flaw_of(record) or (last and last[2] == 'ack') then
    return false
  end
  local lane = key_of(record) and redis.call('HGET', keys.lanes, key_of(record))
  local is_next = lane and string.sub(lane, 2) == id
  return is_next or not is_time_of_finish(place.score, id, record)
end

local function check_over(id, record, place)
  if is_unfinished(id, record, place) then
    return fault(id, 'finished by nobody', function()
      remove_from(place, id)
      end_lease(id)
      wait_again(id, record)
    end)
  end
  if place.name == 'dead' and redis.call('HEXISTS', keys.why, id) == 0 then
    fault(id, 'dead without a reason', function()
      keep_end(keys.why, id, 'unknown', sound_counts(keys.counts, id), { errors = {}, timeline = {} }, '')
    end)
  end
  if not (place.score >= 0 and place.score < NO_TIME) then
    fault(id, 'over since no time', function()
      redis.call('ZADD', place.key, now, id)
    end)
  end
  if redis.call('HEXISTS', keys.leases, id) == 1 then
    fault(id, 'a lease, but not leased', function()
      end_lease(id)
    end)
  end
  if not flaw_of(record) then
    check_expiry(id, record, false)
  end
end

-- @only topic
local function check_entered(id, places)
  fault(id, 'waits, but has entered the stream', function()
    for _, place in ipairs(places) do
      redis.call('ZREM', place.key, place.member)
    end
    redis.call('HDEL', keys.msgs, id)
    remove_rows(id)
  end)
end

-- Nobody redrives the dead letters of a topic: what can enter must not be one.
local function check_dead_but_sound(id, record, place)
  fault(id, 'dead, though it can enter the stream', function()
    remove_from(place, id)
    redis.call('HDEL', keys.why, id)
    wait_again(id, record)
  end)
end
-- @end

local function check(id)
  local record = redis.call('HGET', keys.msgs, id)
  local places = places_of(id, record)
  reply[2] = reply[2] + 1
  -- @only topic
  if record and has_entered[id] then
    return check_entered(id, places)
  end
  -- @end
  if #places == 0 then
    return check_nowhere(id, record)
  end
  for i = 2, #places do
    fault(id, 'in two places: ' .. places[1].name .. ' and ' .. places[i].name, function()
      remove_from(places[i], id)
      redis.call('ZADD', places[1].key, places[1].score, places[1].member) -- only its rows may have told of it
    end)
  end
  local place = places[1]
  if not record then
    return check_bodiless(id, place)
  end
  -- @only topic
  if place.name == 'dead' and not store.is_flawed(record) then
    return check_dead_but_sound(id, record, place)
  end
  -- @end
  -- @only group
  if flaw_of(record) and place.name ~= 'done' and check_overwritten(id, place) then
    return
  end
  -- @end
  if place.name == 'dead' or place.name == 'done' then
    check_over(id, record, place)
  elseif store.is_flawed(record) then
    fault(id, 'damaged', function()
      remove_from(place, id)
      redis.call('HDEL', keys.leases, id)
      bury_flawed(id, record, #record)
    end)
  elseif store.is_nameless(id) then
    check_foreign_id(id, record, place)
  elseif place.name == 'misplaced' then
    fault(id, 'waits under a wrong priority', function()
      redis.call('ZREM', place.key, id)
      wait_again(id, record)
    end)
  else
    check_live(id, record, place)
  end
  if source == 'msgs' then
    local at = ({ dead = 4, done = 5 })[place.name] or 3
    check_hints(record, at == 3)
    reply[at] = reply[at] + #record
  end
end

-- Counts what went wrong anew. When it waits for a retry, its place says for how long.
local function count_again(id, record)
  local counted = with_more(sound_counts(keys.counts, id), recounted(sound_past(keys.why, id).timeline))
  local place = not flaw_of(record) and redis.call('ZSCORE', keys.waiting[store.waits_under(record)], id)
  local waits_until = math.ceil(tonumber(place or 0))
  if place and waits_until > due_of(record) and waits_until < NO_TIME then
    counted[DUE] = waits_until
  end
  keep_counts(keys.counts, id, counted)
end

local function check_counts(id, stored)
  local record = redis.call('HGET', keys.msgs, id)
  local place = places_of(id, record)[1]
  if place and (place.name == 'dead' or place.name == 'done') then
    fault(id, 'counts of a message that is over', function()
      redis.call('HDEL', keys.counts, id)
    end)
  elseif not is_counts(stored) then
    fault(id, 'counts that cannot be read', function()
      count_again(id, record)
    end)
  elseif record and place and knows_too_little(id, stored) then
    fault(id, 'troubled, but not counted', function()
      count_again(id, record)
    end)
  end
  check(id)
end

local function check_why(id, stored)
  local record = redis.call('HGET', keys.msgs, id)
  local place = places_of(id, record)[1]
  local is_live = place and place.name ~= 'dead' and place.name ~= 'done'
  if not is_why(stored) then
    fault(id, 'a past that cannot be read', function()
      redis.call('HDEL', keys.why, id)
      if place and place.name == 'done' then
        keep_end(keys.why, id, '', read_counts(nil), { errors = {}, timeline = {} }, '')
      end
    end)
  elseif is_live and unpacked(stored)[1] ~= '' then
    fault(id, 'alive, but with a reason to be dead', function()
      keep_past(keys.why, id, sound_past(keys.why, id))
    end)
  end
  if is_live and redis.call('HEXISTS', keys.counts, id) == 0 then
    fault(id, 'troubled, but not counted', function()
      count_again(id, record)
    end)
  end
  check(id)
end

-- @only topic
-- What waits for its time was never in trouble.
local function check_why_of_delayed(id, stored)
  local place = places_of(id, redis.call('HGET', keys.msgs, id))[1]
  local function forget_past()
    redis.call('HDEL', keys.why, id)
  end
  if not is_why(stored) then
    fault(id, 'a past that cannot be read', forget_past)
  elseif place and place.name ~= 'dead' then
    fault(id, 'alive, but with a reason to be dead', forget_past)
  end
  check(id)
end
-- @end

-- Whether `member` is what stands for this record in `parked`.
local function is_parked_as(member, id, record)
  local key = not flaw_of(record) and key_of(record)
  return key and parked_member(key, record, id) == member
end

-- A lane of nobody begins anew: the first that are parked wait again, and a claim makes their order. It is given to
-- none of them, for the one that it was handed on to may wait already. Of many lanes, or of one that is met again and
-- again, few wait a call: the others are met parked behind nobody.
local left_to_let_wait = LET_WAIT_A_CALL
local function begin_lane(key)
  local count = math.max(left_to_let_wait, LET_WAIT_A_LANE)
  free_lanes(keys.lanes, { key })
  for _, member in ipairs(first_parked(keys.parked, key, count)) do
    left_to_let_wait = left_to_let_wait - 1
    local id = id_of_parked(member)
    local record = redis.call('HGET', keys.msgs, id)
    if is_parked_as(member, id, record) then
      redis.call('ZREM', keys.parked, member)
      wait_again(id, record)
    end
  end
end

local function check_parked_elsewhere(id, member, record)
  local is_lost = id and not record and #places_of(id, record) == 0
  -- @only group
  if is_lost and check_entry(id, { name = 'parked', key = keys.parked, member = member }) then
    return false
  end
  -- @end
  fault(id or member, is_lost and 'place without a body' or 'parked where it does not belong', function()
    redis.call('ZREM', keys.parked, member)
    if is_lost then
      redis.call('HDEL', keys.leases, id)
      bury_flawed(id, nil, 0)
    end
  end)
  return id and not is_lost and check(id)
end

-- A parked message must have somebody in front of it who knows that it is there.
local function check_parked(member)
  if not redis.call('ZSCORE', keys.parked, member) then
    return -- it was let in by what was mended before it
  end
  local id = string.find(member, '\0', 1, true) and id_of_parked(member)
  local record = id and redis.call('HGET', keys.msgs, id)
  if not is_parked_as(member, id, record) then
    return check_parked_elsewhere(id, member, record)
  end
  check(id)
  local key = key_of(record)
  local lane = redis.call('HGET', keys.lanes, key)
  if not lane or string.sub(lane, 2) == id then
    fault(id, 'parked behind nobody', function()
      begin_lane(key)
    end)
  elseif string.sub(lane, 1, 1) ~= SOMEBODY_BEHIND then
    fault(id, 'parked behind one that does not know', function()
      redis.call('HSET', keys.lanes, key, SOMEBODY_BEHIND .. string.sub(lane, 2))
    end)
  end
end

-- A lane belongs to a message that is out, waits, or is dead and waited for.
local function check_lane(key, stored)
  local id, mark = string.sub(stored, 2), string.sub(stored, 1, 1)
  local record = redis.call('HGET', keys.msgs, id)
  local place = places_of(id, record)[1]
  local is_its_key = record and not flaw_of(record) and key_of(record) == key
  reply[2] = reply[2] + 1
  if not is_its_key or not place or place.name == 'parked' or place.name == 'done' then
    fault(id, 'the lane ' .. key .. ' belongs to nobody', function()
      begin_lane(key)
    end)
  elseif mark ~= NOBODY_BEHIND and mark ~= SOMEBODY_BEHIND then
    fault(id, 'the lane ' .. key .. ' has no mark', function()
      redis.call('HSET', keys.lanes, key, SOMEBODY_BEHIND .. id)
    end)
  end
end

-- How long a window lasts yet, as the message says that opened it; 0: nobody knows, or it is over.
local function left_of_window(value, id)
  local record = id and redis.call('HGET', keys.msgs, id)
  local options = record and not flaw_of(record) and options_of(record)
  if not options or options.dedup ~= value then
    return 0
  end
  return math.min(math.max(sent_of(record) + options.dedup_for - now, 0), LONGEST_US)
end

local function check_dedup(value)
  local id, ends = redis.call('HGET', keys.dedup, value), redis.call('ZSCORE', keys.dedup_ends, value)
  local is_whole_window = id and is_text(id) and ends
  reply[2] = reply[2] + 1
  if not is_whole_window or tonumber(ends) > now + LONGEST_US then
    fault(value, is_whole_window and 'a dedup window without an end' or 'half a dedup window', function()
      local left = left_of_window(value, id)
      if left > 0 then
        open_window(keys, now, id, value, left)
        redis.call('PEXPIRE', keys.dedup_ends, redis.call('PTTL', keys.dedup)) -- the key may be new
      else
        redis.call('HDEL', keys.dedup, value)
        redis.call('ZREM', keys.dedup_ends, value)
      end
    end)
  end
end

local CHECKS = {
  counts = check_counts,
  why = check_why,
  lanes = check_lane,
  parked = check_parked,
  dedup = check_dedup,
  dedup_ends = check_dedup,
  schedules = check_schedule,
  slots = check_slot,
}
-- @only topic
CHECKS.why = check_why_of_delayed
-- @end
local HASHES = { msgs = true, leases = true, counts = true, why = true, dedup = true, lanes = true, schedules = true }
local NO_IDS = { leased = PILLAR, lanes = LANES_PILLAR_FIELD }

local function check_step()
  local priority = string.match(source, '^waiting(%d)$')
  local key = priority and keys.waiting[tonumber(priority)] or keys[source]
  local check_one = CHECKS[source] or check
  local rows, following = store.step_of(key, HASHES[source])
  reply[1] = following
  for i = 1, #rows, 2 do
    if rows[i] ~= NO_IDS[source] then
      check_one(rows[i], rows[i + 1])
    end
  end
end

-- A script has room for 200 names, and so has each function of it: these have theirs. First comes what would stop the
-- scripts, this one too, and the rest when nothing of it is left.
local check_readable = function()
-- @include lib/audit/keys.lua
  check_types()
  check_all_fields()
end

local check_meta = function()
-- @include lib/audit/meta.lua
  -- @only topic
  check_keys_of_queues()
  -- @end
  check_clock()
  check_rate()
  check_times_to_live()
  check_parked_scores()
  check_counters()
  check_priorities()
  check_pillars()
  check_next_slot()
end

if source == 'keys' then
  check_readable()
  return reply
end
if repair then
  let_a_full_server_drain(keys.meta)
end
now = tick(redis.call('HGET', keys.meta, 'clock'))
if source == 'meta' then
  check_meta()
else
  check_step()
end
return reply
