-- Adds delayed publishes that are due to the stream, a bounded number per call.

-- @include lib/clock.lua
-- @include lib/record.lua

local LET_IN_PER_CALL, BYTES_LET_IN_PER_CALL = 1000, 4194304
local MOST_LET_IN_TEXTS = 7000 -- more do not fit on the stack
local TRY_AGAIN_US = 1000000 -- when the stream has refused one

-- Returns where the envelope begins: after the options that the flags announce.
local function envelope_at(record)
  local flags, at = flags_of(record), OPTIONS_AT
  if has(flags, FLAG_TTL) then
    at = at + 8
  end
  if has(flags, FLAG_DEDUP) then
    at = at + 10 + struct.unpack('<H', record, at + 8)
  end
  if has(flags, FLAG_KEY) then
    at = at + 2 + struct.unpack('<H', record, at)
  end
  return at
end

-- Returns the content code, the body, and the position of the rest of an envelope, which is an array of two elements or
-- more. The second one is binary.
local function read_body(record, at)
  local content, kind = string.byte(record, at + 1, at + 2)
  local formats = { [196] = '>B', [197] = '>H', [198] = '>I4' }
  local size, body_at = struct.unpack(formats[kind], record, at + 3)
  if body_at + size - 1 > #record then
    error('cut off')
  end
  return content, string.sub(record, body_at, body_at + size - 1), body_at + size
end

-- Returns the fields of the entry for a record: see lib/entry.lua.
local function fields_of(record)
  local at = envelope_at(record)
  local elements = string.byte(record, at) - 144
  local content, body, rest_at = read_body(record, at)
  local fields = { content == 1 and 'body' or 'bytes', body }
  local key = options_of(record).key
  if key then
    fields[#fields + 1] = 'key'
    fields[#fields + 1] = key
  end
  fields[#fields + 1] = 'sent'
  fields[#fields + 1] = string.format('%.0f', sent_of(record))
  local _, headers
  if elements > 2 then
    _, headers = cmsgpack.unpack_one(record, rest_at - 1)
  end
  for name, value in pairs(type(headers) == 'table' and headers or {}) do
    fields[#fields + 1] = 'header:' .. name
    fields[#fields + 1] = value
  end
  return fields
end

-- As fields_of; nil: another program overwrote the record.
local function fields_if_sound(record)
  if flaw_of(record) then
    return nil
  end
  local is_read, fields = pcall(fields_of, record)
  return is_read and #fields <= MOST_LET_IN_TEXTS and fields or nil
end

-- Returns false if the stream refuses the entry: it has another type, its ids are used up, or the server is full. The
-- publish stays, because that may be repaired.
local function enter(stream, fields)
  local added = redis.pcall('XADD', stream, '*', unpack(fields))
  return not (type(added) == 'table' and added.err)
end

-- Stores the size of the largest entry: readers use it to ask for as many entries as fit.
local function store_largest(meta, size)
  if size > tonumber(redis.call('HGET', meta, 'largest') or 0) then
    redis.call('HSET', meta, 'largest', size)
  end
end

local function size_of_texts(texts)
  local size = 0
  for _, text in ipairs(texts) do
    size = size + #text
  end
  return size
end

-- Makes a publish that cannot be read a dead letter of the topic, with a row of `why` as in lib/history.lua and the
-- rest of its record. If `dead` has another type, the publish is left to an audit, because others have entered already.
local function bury_unreadable(topic, id, record, now)
  local why = cmsgpack.pack({ record and 'damaged' or 'body lost', 0, 0, 0, 0, {}, 0, {}, 0, '', 0 })
  local size = record and #record or 0
  local placed = redis.pcall('ZADD', topic.dead, now, id)
  if type(placed) == 'table' and placed.err then
    return
  end
  redis.pcall('HSET', topic.why, id, why)
  redis.call('HINCRBY', topic.meta, 'buried', 1)
  redis.call('HINCRBY', topic.meta, 'bytes', 0 - size)
  redis.call('HINCRBY', topic.meta, 'dead_bytes', size)
end

-- `topic` has the keys msgs, waiting, dead, why and meta. Returns the microseconds until the next publish is due: 0 if
-- one is due now, nil if there is none.
local function add_due_publishes(topic, stream)
  local head = redis.call('ZRANGE', topic.waiting, 0, 0, 'WITHSCORES')
  if #head == 0 then
    return nil
  end
  local now = tick(redis.call('HGET', topic.meta, 'clock'))
  if tonumber(head[2]) > now then
    return tonumber(head[2]) - now
  end
  local due = redis.call('ZRANGEBYSCORE', topic.waiting, '-inf', now, 'LIMIT', 0, LET_IN_PER_CALL)
  local seen, entered, size, largest, is_refused = {}, {}, 0, 0, false
  for _, id in ipairs(due) do
    local record = size < BYTES_LET_IN_PER_CALL and redis.call('HGET', topic.msgs, id)
    if size >= BYTES_LET_IN_PER_CALL then
      break
    end
    local fields = fields_if_sound(record)
    is_refused = fields and not enter(stream, fields)
    if is_refused then
      break
    elseif fields then
      size, entered[#entered + 1] = size + #record, id
      largest = math.max(largest, size_of_texts(fields))
    else
      bury_unreadable(topic, id, record, now)
    end
    seen[#seen + 1] = id
  end
  if #seen > 0 then
    redis.call('ZREM', topic.waiting, unpack(seen))
    store_clock(topic.meta, now)
  end
  if #entered > 0 then
    redis.call('HDEL', topic.msgs, unpack(entered))
    redis.call('HINCRBY', topic.meta, 'bytes', 0 - size)
    redis.call('HINCRBY', topic.meta, 'entered', #entered)
    store_largest(topic.meta, largest)
  end
  if is_refused then
    return TRY_AGAIN_US
  end
  local following = redis.call('ZRANGE', topic.waiting, 0, 0, 'WITHSCORES')
  return following[2] and math.max(tonumber(following[2]) - now, 0) or nil
end
