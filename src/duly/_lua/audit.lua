--[[
audit -- check one step of one key of the queue: each id must be in exactly one place, with all its data.

For a topic, it checks the store of delayed publishes.

It runs while the queue is in use. A step checks its ids in one script, so a message that moves causes no finding.

KEYS     msgs, leased, leases, counts, why, expires, dead, done, dedup, dedup_ends, lanes, parked, schedules,
         slots, awaited, ends, wake, meta, history, waiting*
-- @only topic
         stream
-- @end
ARGV     digits  text
         repair  flag    1: repair every fault | 0: only report
         source  text    the name of the key to check, waiting0 ... waiting9; meta; keys: whether keys can be read
         cursor  text    0 at first, then the cursor of the last reply
RETURNS  { cursor, checked, live_bytes, dead_bytes, done_bytes, dead_why_bytes, done_why_bytes, id, fault ... }; cursor
         0: this was the last step
KEEPS    I1 I2 I3 I7 I9: a repair loses no body, delivers nothing early, and may be repeated.
]]
-- @include lib/clock.lua
-- @include lib/record.lua
-- @include lib/lease.lua
-- @include lib/counts.lua
-- @include lib/history.lua
-- @include lib/leased.lua
-- @include lib/waiting.lua
-- @include lib/wake.lua
-- @include lib/lanes.lua
-- @include lib/bury.lua
-- @include lib/drain.lua
local IDS_PER_CALL = 50
local LONGEST_US = 316224000000000 -- ten years, all of them leap years: no client asks for a longer lease or window
local ENDLESS_LEASE_US = 60000000 -- a lease without an end gets this much: its holder may still work on the message
local now -- the queue's clock. Only this file sets it; the step `keys` runs without it

-- Each part checks one thing. Its first lines state what it reads, changes and gives; all other names are local to it.
-- @include lib/audit/report.lua
-- @include lib/audit/rows.lua
-- @include lib/audit/store.lua
-- @include lib/audit/places.lua
-- @include lib/audit/moves.lua
-- @include lib/audit/bodies.lua
-- @include lib/audit/history.lua
-- @include lib/audit/lanes.lua
-- @include lib/audit/live.lua
-- @include lib/audit/ended.lua
-- @include lib/audit/dedup_windows.lua
-- @include lib/audit/schedules.lua
-- @include lib/audit/keys.lua
-- @include lib/audit/fields.lua
-- @include lib/audit/clock.lua
-- @include lib/audit/points.lua
-- @only topic
-- @include lib/audit/delayed.lua
-- @end

-- Checks that a message has one place (I2). A repair keeps the first.
local function check_other_places(id, places)
  for i = 2, #places do
    fault(id, 'in two places: ' .. places[1].name .. ' and ' .. places[i].name, function()
      remove_from(places[i], id)
      redis.call('ZADD', places[1].key, places[1].score, places[1].member) -- it may be inferred and not stored yet
    end)
  end
end

-- Checks a message that has a place and a body.
local function check_placed(id, record, place)
  if place.name == 'dead' or place.name == 'done' then
    check_ended(id, record, place)
  elseif store.is_flawed(record) then
    check_damaged(id, record, place)
  elseif store.has_bad_id(id) then
    check_bad_id(id, record, place)
  else
    check_live(id, record, place)
  end
  if source == 'msgs' then
    check_hints(record, place.name ~= 'dead' and place.name ~= 'done')
    count_bytes(place.name, #record)
  end
end

local function check_message(id)
  local record = redis.call('HGET', keys.msgs, id)
  local places = places_of(id, record)
  local place = places[1]
  count_id()
  -- @only topic
  if record and has_entered(id) then
    return check_entered(id, places)
  end
  -- @end
  if not place then
    return check_nowhere(id, record)
  end
  check_other_places(id, places)
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
  check_placed(id, record, place)
end

-- Rows are counted here and not in steps of `why`. If messages finish, `why` may shrink, and HSCAN then returns rows
-- twice. While no message is added to `dead` or removed from it, ZSCAN returns each once.
local function check_over(id)
  count_row(source, redis.call('HSTRLEN', keys.why, id))
  check_message(id)
end

local CHECKS = {
  dead = check_over,
  done = check_over,
  counts = function(id, stored)
    check_counts(id, stored)
    check_message(id)
  end,
  why = function(id, stored)
    check_why(id, stored)
    check_message(id)
  end,
  lanes = check_lane,
  parked = function(member)
    local id, key = check_parked_member(member)
    if id then
      check_message(id)
    end
    if key then
      check_lane_ahead(id, key)
    end
  end,
  dedup = check_dedup,
  dedup_ends = check_dedup,
  schedules = check_schedule,
  slots = check_slot,
}
-- @only topic
CHECKS.why = function(id, stored)
  check_why_of_delayed(id, stored)
  check_message(id)
end
-- @end
local HASHES = { msgs = true, leases = true, counts = true, why = true, dedup = true, lanes = true, schedules = true }
local NO_IDS = { leased = ENCODING_GUARD, lanes = LANES_GUARD_FIELD }

local function check_step()
  local priority = string.match(source, '^waiting(%d)$')
  local key = priority and keys.waiting[tonumber(priority)] or keys[source]
  local check_one = CHECKS[source] or check_message
  local rows, following = store.step_of(key, HASHES[source])
  continue_at(following)
  for i = 1, #rows, 2 do
    if rows[i] ~= NO_IDS[source] then
      check_one(rows[i], rows[i + 1])
    end
  end
end

local function check_meta()
  -- @only topic
  check_keys_of_queues()
  -- @end
  now = check_clock()
  check_rate()
  check_times_to_live()
  check_parked_scores()
  check_counters()
  check_priorities()
  check_encoding_guards()
  check_next_slot()
  check_points()
end

-- Unreadable keys and fields would stop any script, this one included. The client repairs them before other steps.
if source == 'keys' then
  check_types()
  check_all_fields()
  return report()
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
return report()
