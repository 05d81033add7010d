--[[
commit -- finish a message, send messages, publish entries and change keys of the user: all of it or nothing.

KEYS     call, msgs, leased, leases, counts, why, done, lanes, parked, wake, meta, awaited, ends, waiting*
         others*: per target the keys of send_checked, per topic those of publish, without `call`; then the user's
ARGV     sequence      text
         keeps         flag    1: finished messages are kept in `done` | 0: they are removed
         done_kept     row     count, age: microseconds, bytes; of finished messages, -1: no bound
         digits        text    of `waiting*`, here and in each target
         settles       row     id, fence, result: '' for none; stored if finished messages are kept
         result_in     number  microseconds within which keep_result may store the result; 0: there is none
         target_count  number  stores to send to: queues, and topics whose entries are delayed
         topic_count   number  topics to publish to
         effect_count  number  effects to carry out
         target_rows*  rows    is_own: 1 if it is this queue, max_length, max_bytes, on_full: all or drop, messages:
                               their number; followed by the messages
         messages*     rows    id, part, when
         topic_rows*   rows    keep_count, keep_age, keep_bytes, size: arguments of its entries; followed by the entries
                               as in publish, none of them plain
         entries*      rows    dedup, window, texts
         effect_rows*  rows    key: 1 is the user's first, name: of the command, size: number of arguments; followed by
                               the arguments without the key
RETURNS  { 0 }              the lease was lost
         { 1, outcomes, ids, replies }  done: outcomes of sends as in send_checked (position, outcome, id ...),
                            ids of the entries, replies of the effects; an integer over 53 bits is { digits }
         { 2, target }      this target (1, 2 ...) has no room
         { 3, effect, why } this effect (1, 2 ...) cannot be carried out
         { 4, topic, why }  this topic (1, 2 ...) cannot be published to
KEEPS    I1 I2 I5 I6 I7 I9: all checks come before the first write; only 1 changes anything.
]]
-- @include lib/drain.lua
-- @include lib/keep_finished.lua
-- @include lib/finish.lua
-- @include lib/send_plan.lua
-- @include lib/types.lua

-- Wrapped in a function, because a script may have at most 200 local names.
local checks = (function()
  -- @include lib/effects.lua
  return {
    effects_from = effects_from,
    add_no_data = add_no_data,
    problem_of = problem_of,
    problem_of_stream = problem_of_stream,
    carry_out_effects = carry_out_effects,
  }
end)()
-- Created only if there are topics: most commits have none.
local topics = topic_count > 0
  and (function()
    -- @include lib/publications.lua
    -- Returns the first key of a topic that another program overwrote with a value of another type, or nil.
    local function mistyped_in_topic(topic)
      local found = { ends = topic.stream, waiting = { topic.waiting } }
      for _, name in ipairs({ 'msgs', 'dedup', 'dedup_ends', 'dead', 'why', 'meta' }) do
        found[name] = topic[name]
      end
      return mistyped(found)
    end

    -- Returns the topics whose rows begin at `at` and whose keys begin at `first_key`, and the positions after them.
    -- `wrong` is a key that another program overwrote.
    local function topics_from(at, first_key, count)
      local found = { at = at, first_key = first_key }
      for i = 1, count do
        local row, first = found.at, found.at + topic_rows.stride
        local last = first + tonumber(topic_rows.size(row)) - 1
        local kept = bounds_of(topic_rows.keep_count(row), topic_rows.keep_age(row), topic_rows.keep_bytes(row))
        local topic, next_key = publishing_keys(found.first_key)
        found[i] = { keys = topic, keep = kept, first = first, last = last }
        found.wrong = found.wrong or mistyped_in_topic(topic)
        found.at, found.first_key = last + 1, next_key
      end
      return found
    end

    -- Returns why entries cannot be published, or nil. Redis 6.2 cannot check permissions beforehand.
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

local LOST, COMMITTED, NO_ROOM, IMPOSSIBLE, UNPUBLISHABLE = 0, 1, 2, 3, 4

local held = held_batch(keys.leases)
if #held.ids == 0 then
  return { LOST }
end

-- Checks, first of sends, then of topics and effects. Nothing is written.
local wrong = mistyped(keys)
-- @only group
wrong = wrong or not is_type(STREAM, 'stream') and STREAM
-- @end
local plans, own_plan, at, first_key = {}, nil, target_rows.first, others.first
for i = 1, target_count do
  local target, next_key = sending_keys(first_key, digits)
  wrong = wrong or mistyped(target)
  if wrong then
    break
  end
  local is_own, first = target_rows.is_own(at) == '1', at + target_rows.stride
  local last = first + tonumber(target_rows.messages(at)) * messages.stride - 1
  local bounds = {
    length = tonumber(target_rows.max_length(at)),
    bytes = tonumber(target_rows.max_bytes(at)),
    on_full = target_rows.on_full(at),
  }
  plans[i] = plan_sends(target, first, last, bounds, is_own and { id = settles.id, size = held.size })
  own_plan = is_own and plans[i] or own_plan
  at, first_key = last + 1, next_key
end
local published = topics and not wrong and topics.from(at, first_key, topic_count) or {}
at, first_key, wrong = published.at or at, published.first_key or first_key, wrong or published.wrong
if wrong then
  return redis.error_reply('WRONGTYPE the key ' .. wrong .. ' of a queue or topic was overwritten')
end

local effects = checks.effects_from(at, effect_count, first_key)
if target_count == 0 and not topics and checks.add_no_data(effects) then
  let_a_full_server_drain(keys.leases)
end
for i, plan in ipairs(plans) do
  if plan.is_refused then
    return answer({ NO_ROOM, i })
  end
end
for i, topic in ipairs(published) do
  local problem = topics.problem_of(topic)
  if problem then
    return answer({ UNPUBLISHABLE, i, problem })
  end
end
local views = {}
for i, effect in ipairs(effects) do
  local problem = checks.problem_of(views, effect)
  if problem then
    return answer({ IMPOSSIBLE, i, problem })
  end
end

-- Writes. A full server refuses the first one, unless the call adds no data. That write alone does no harm, so nothing
-- has happened if the first effect fails. The message is finished before messages are sent to its queue, because one
-- of them may have its id.
local now = own_plan and own_plan.now or tick(redis.call('HGET', keys.meta, 'clock'))
store_clock(keys.meta, now)
local replies, failed, failure = checks.carry_out_effects(effects)
if failed == 1 then
  return answer({ IMPOSSIBLE, failed, 'the server replied ' .. failure })
elseif failed then
  local begin = 'ERR the commit is HALF DONE: effect ' .. failed .. ', ' .. effects[failed].name .. ', failed after '
  local rest = 'the effects before it were carried out, and nothing else was; the message is still leased. '
  return redis.error_reply(begin .. rest .. 'The server replied ' .. failure)
end
local kept = keeps and bounds_of(done_kept.count, done_kept.age, done_kept.bytes)
finish(keys, held, { settles.result }, kept, now, result_in > 0 and now + result_in or nil)
local outcomes, before = {}, 0
for _, plan in ipairs(plans) do
  carry_out(plan)
  add_outcomes(outcomes, plan, before)
  before = before + plan.count
end
return answer({ COMMITTED, outcomes, topics and topics.publish(published) or {}, replies })
