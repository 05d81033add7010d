-- Adds entries to the stream of a topic, and keeps the stream within its bounds. An entry is a row of `entries` and its
-- texts: field, value ... A plain entry is only its JSON body.

-- @include lib/bounds.lua
-- @include lib/clock.lua
-- @include lib/delayed_publishes.lua
-- @include lib/stream_retention.lua
-- @include lib/dedup_windows.lua

local WINDOWS_PER_CALL, MOST_TEXTS = 100, 7000 -- more do not fit on the stack

-- Returns the keys of a topic that begin at a position of KEYS, and the position after them.
-- @keys publishing_keys of publish

-- Returns the first problem of the entries in ARGV[first] to ARGV[last], or nil.
local function problem_of_entries(first, last)
  local at = first
  while at <= last do
    local texts = tonumber(entries.texts(at))
    if texts > MOST_TEXTS then
      return 'an entry has ' .. texts / 2 .. ' fields: at most ' .. MOST_TEXTS / 2 .. ' are possible'
    end
    at = at + entries.stride + texts
  end
  return nil
end

-- Returns the texts of an entry, and their size.
local function texts_of(first, last)
  local texts, size = {}, 0
  for at = first, last do
    texts[#texts + 1], size = ARGV[at], size + #ARGV[at]
  end
  return texts, size
end

-- Adds plain entries. Returns their ids and the size of the largest.
local function publish_plain(stream, first, last)
  local add = redis.call
  local ids, largest = {}, 0
  for at = first, last do
    local body = ARGV[at]
    ids[at - first + 1] = add('XADD', stream, '*', 'body', body)
    if #body > largest then
      largest = #body
    end
  end
  return { ids = ids, published = #ids, largest = largest, windows = 0 }
end

-- Returns the id of the first entry with a dedup value, if its window is open.
local function first_with(topic, value, now)
  local ends = redis.call('ZSCORE', topic.dedup_ends, value)
  return ends and tonumber(ends) > now and redis.call('HGET', topic.dedup, value)
end

-- Adds entries with any fields, one per dedup value.
local function publish_each(topic, first_entry, last_entry, now)
  local added, at = { ids = {}, published = 0, largest = 0, windows = 0 }, first_entry
  while at <= last_entry do
    local value, first = entries.dedup(at), at + entries.stride
    local last = first + tonumber(entries.texts(at)) - 1
    local id = value ~= '' and first_with(topic, value, now)
    if not id then
      local texts, size = texts_of(first, last)
      id = redis.call('XADD', topic.stream, '*', unpack(texts))
      added.published = added.published + 1
      added.largest = math.max(added.largest, size)
      if value ~= '' then
        open_window(topic, now, id, value, tonumber(entries.window(at)))
        added.windows = added.windows + 1
      end
    end
    added.ids[#added.ids + 1] = id
    at = last + 1
  end
  return added
end

-- Adds due publishes, then the entries in ARGV[first] to ARGV[last], which the caller has checked. Returns their ids.
local function publish_entries(topic, first, last, is_plain, keep)
  add_due_publishes(topic, topic.stream)
  local meta = redis.call('HMGET', topic.meta, 'clock', 'largest', 'published')
  local now, ahead = tick(meta[1])
  local added = is_plain and publish_plain(topic.stream, first, last) or publish_each(topic, first, last, now)
  redis.call('HSET', topic.meta, 'published', (meta[3] or 0) + added.published)
  if #added.ids > added.published then
    redis.call('HINCRBY', topic.meta, 'duplicates', #added.ids - added.published)
  end
  if added.largest > tonumber(meta[2] or 0) then
    redis.call('HSET', topic.meta, 'largest', added.largest)
  end
  if added.windows > 0 then
    store_clock(topic.meta, now)
    close_windows(topic, now, added.windows + WINDOWS_PER_CALL)
  end
  retain(topic, topic.stream, keep, now - ahead)
  return added.ids
end
