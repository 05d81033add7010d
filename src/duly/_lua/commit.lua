--[[
commit -- finish a message, send others, publish entries and change keys of the user, in one step or not at all.

KEYS     call        string  last call of the stream and its reply
         msgs        hash    id -> record
         leased      zset    id -> lease deadline
         leases      hash    id -> lease
         counts      hash    id -> what went wrong with it
         why         hash    id -> errors, reason, timeline, result
         done        zset    id -> when it was finished
         lanes       hash    key -> the id that its lane belongs to
         parked      zset    what is due and behind its lane's id
         wake        list    the wake token
         meta        hash    clock, limited
         awaited     zset    id -> until when somebody waits for its end
         ends        stream  the ends that were awaited
         waiting*    zset    id -> due, every priority
         others*     for each target the keys of send_checked, for each topic those of publish, but `call`; the user's
ARGV     sequence    of the call in its stream
         keeps       1: finished messages are kept in `done` | 0: they are gone
         keep_count  finished messages kept; -1: any number
         keep_age    microseconds they are kept; -1: for ever
         keep_bytes  bytes of them kept; -1: any number
         digits      priorities of `waiting*`, here and in each target
         id          of the message
         fence       that proves the lease
         result      kept with the message if finished ones are kept; '' for none
         result_in   microseconds within which keep_result may bring the result; 0: none will come
         targets     how many stores messages are sent to: queues, and topics whose entries are delayed
         topics      how many topics entries are published to
         effects     how many effects there are
         rest*       for each target: 1: it is this queue | 0, max_length, max_bytes, on_full (all or drop), number of
                     messages, then id, part, when of each; then for each topic: keep_count, keep_age,
                     keep_bytes, number of ARGV that its entries take, then these as in publish, none of them
                     plain; then for each effect: which of the user's keys (1, 2 ...), command, number of
                     arguments, the arguments after the key
RETURNS  { 0 }              the lease was lost
         { 1, outcomes, ids, replies }  done: outcomes of sends as those of send_checked (position, outcome, id ...),
                            ids of the entries, replies of the effects; an integer over 53 bits is { digits }
         { 2, target }      that queue (1, 2 ...) has no room
         { 3, effect, why } that effect (1, 2 ...) cannot be carried out
         { 4, topic, why }  that topic (1, 2 ...) cannot be published to
KEEPS    I1 I2 I5 I6 I7 I9: guard, then write; but for 1 nothing is changed.
]]
-- @include lib/call.lua
-- @include lib/drain.lua
-- @include lib/finish.lua
-- @include lib/sending.lua
-- @include lib/types.lua

-- In a function of its own: a script may have 200 local names at the most.
local checks = (function()
-- @include lib/effects.lua
  return {
    effects_from = effects_from,
    bring_nothing_in = bring_nothing_in,
    problem_of = problem_of,
    problem_of_stream = problem_of_stream,
    carry_out_effects = carry_out_effects,
  }
end)()
-- Not made unless there are topics: most commits have none.
local topics = tonumber(ARGV[12]) > 0 and (function()
-- @include lib/publishing.lua
  local PUBLISH_HEAD = 4

  -- The key of a topic that somebody overwrote with another kind of value, or nil.
  local function mistyped_in_topic(topic)
    local found = { ends = topic.stream, waiting = { topic.waiting } }
    for _, name in ipairs({ 'msgs', 'dedup', 'dedup_ends', 'dead', 'why', 'meta' }) do
      found[name] = topic[name]
    end
    return mistyped(found)
  end

  -- The topics whose arguments begin at ARGV[at] and whose keys begin at KEYS[first_key], with the places behind these;
  -- `wrong` is a key that somebody overwrote.
  local function topics_from(at, first_key, count)
    local found = { at = at, first_key = first_key }
    for i = 1, count do
      local first = found.at + PUBLISH_HEAD
      local last = first + tonumber(ARGV[found.at + 3]) - 1
      found[i] = { keys = publishing_keys(found.first_key), keep = bounds_of_stream(found.at) }
      found[i].first, found[i].last = first, last
      found.wrong = found.wrong or mistyped_in_topic(found[i].keys)
      found.at, found.first_key = last + 1, found.first_key + PUBLISHING_KEYS
    end
    return found
  end

  -- Why entries cannot be published, or nil. Redis 6.2 cannot tell beforehand what a user may do.
  local function problem_of_topic(topic)
    local stream = topic.keys.stream
    if redis.acl_check_cmd and not redis.acl_check_cmd('XADD', stream, '*', 'body', '') then
      return 'the user of this connection may not publish there'
    end
    local is_there = redis.call('EXISTS', stream) == 1
    return is_there and checks.problem_of_stream(stream) or problem_of_entries(topic.first, topic.last)
  end

  local function publish_all(found)
    local ids = {}
    for _, topic in ipairs(found) do
      for _, entry in ipairs(publish_entries(topic.keys, topic.first, topic.last, false, topic.keep)) do
        ids[#ids + 1] = entry
      end
    end
    return ids
  end

  return { from = topics_from, problem_of = problem_of_topic, publish = publish_all }
end)()

local LOST, DONE, NO_ROOM, IMPOSSIBLE, UNPUBLISHABLE = 0, 1, 2, 3, 4
local FIRST_WAITING, FIRST_KEEP, SETTLE, FIRST_REST, TARGET_HEAD = 14, 3, 7, 14, 5
local CALL, sequence, keeps, digits = KEYS[1], ARGV[1], ARGV[2] == '1', ARGV[6]
local id, result_in = ARGV[SETTLE], tonumber(ARGV[10])
local target_count, effect_count = tonumber(ARGV[11]), tonumber(ARGV[13])
local keys = {
  msgs = KEYS[2],
  leased = KEYS[3],
  leases = KEYS[4],
  counts = KEYS[5],
  why = KEYS[6],
  done = KEYS[7],
  lanes = KEYS[8],
  parked = KEYS[9],
  wake = KEYS[10],
  meta = KEYS[11],
  awaited = KEYS[12],
  ends = KEYS[13],
  waiting = waiting_by_priority(FIRST_WAITING, digits),
}

local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end

local held = held_by_caller(keys.leases, SETTLE, 2, SETTLE)
if #held.ids == 0 then
  return { LOST }
end

-- Guard. Plans of sends, topics, then effects; nothing is written.
local wrong = mistyped(keys)
-- @only group
wrong = wrong or not is_type(STREAM, 'stream') and STREAM
-- @end
local plans, own_plan, at, first_key = {}, nil, FIRST_REST, FIRST_WAITING + #digits
for i = 1, target_count do
  local target = sending_keys(first_key, digits)
  wrong = wrong or mistyped(target)
  if wrong then
    break
  end
  local is_own, first = ARGV[at] == '1', at + TARGET_HEAD
  local last = first + tonumber(ARGV[at + 4]) * MESSAGE_STRIDE - 1
  plans[i] = plan_sends(target, first, last, bounds_from(at + 1), is_own and { id = id, size = held.size })
  own_plan = is_own and plans[i] or own_plan
  at, first_key = last + 1, first_key + FIXED_SENDING_KEYS + #digits
end
local published = topics and not wrong and topics.from(at, first_key, tonumber(ARGV[12])) or {}
at, first_key, wrong = published.at or at, published.first_key or first_key, wrong or published.wrong
if wrong then
  return redis.error_reply('WRONGTYPE the key ' .. wrong .. ' of a queue or topic was overwritten')
end

local effects = checks.effects_from(at, effect_count, first_key - 1)
if target_count == 0 and not topics and checks.bring_nothing_in(effects) then
  let_a_full_server_drain(keys.leases)
end
for i, plan in ipairs(plans) do
  if plan.is_refused then
    return answer(CALL, sequence, { NO_ROOM, i })
  end
end
for i, topic in ipairs(published) do
  local problem = topics.problem_of(topic)
  if problem then
    return answer(CALL, sequence, { UNPUBLISHABLE, i, problem })
  end
end
local views = {}
for i, effect in ipairs(effects) do
  local problem = checks.problem_of(views, effect)
  if problem then
    return answer(CALL, sequence, { IMPOSSIBLE, i, problem })
  end
end

-- Writes. The first is one that a full server refuses, unless the call brings nothing in, and harmless without
-- the rest: should the first effect fail after all, nothing has happened yet. The message is finished before its
-- queue is sent to: its id may be used again.
local now = own_plan and own_plan.now or tick(redis.call('HGET', keys.meta, 'clock'))
remember(keys.meta, now)
local replies, failed, failure = checks.carry_out_effects(effects)
if failed == 1 then
  return answer(CALL, sequence, { IMPOSSIBLE, failed, 'the server says ' .. failure })
elseif failed then
  local begin = 'ERR the commit is HALF DONE: effect ' .. failed .. ', ' .. effects[failed].name .. ', failed after '
  local rest = 'the effects before it were carried out, and nothing else was; the message is still leased. '
  return redis.error_reply(begin .. rest .. 'The server says ' .. failure)
end
finish(keys, held, { ARGV[9] }, keeps and keep_from(FIRST_KEEP), now, result_in > 0 and now + result_in or nil)
local outcomes, before = {}, 0
for _, plan in ipairs(plans) do
  carry_out(plan)
  add_outcomes(outcomes, plan, before)
  before = before + plan.count
end
return answer(CALL, sequence, { DONE, outcomes, topics and topics.publish(published) or {}, replies })
