-- An entry of a stream and the record that a group keeps of it. An entry has its body in the field `body` (JSON) or
-- `bytes`, and perhaps `key`, `sent` (microseconds, if it had waited) and `header:NAME`. What another program added
-- without a body is one: all of its fields.

-- @include lib/layout.lua

local CONTENT_BYTES, CONTENT_JSON, CONTENT_FIELDS = 0, 1, 2
local VERSION, LONGEST_KEY = 1, 1024

-- Binary data as a client packs it.
local function packed_bytes(text)
  local size = #text
  if size < 256 then
    return struct.pack('BBc0', 196, size, text)
  elseif size < 65536 then
    return struct.pack('>BHc0', 197, size, text)
  end
  return struct.pack('>BI4c0', 198, size, text)
end

local function listed(fields)
  local parts = {}
  for i, text in ipairs(fields) do
    parts[i] = struct.pack('<I4c0', #text, text)
  end
  return table.concat(parts)
end

-- A key that other scripts can bear: anybody may have written it.
local function is_sound_key(key)
  return #key > 0 and #key <= LONGEST_KEY and not string.find(key, '%c')
end

-- The record of an entry with more than a body, and its key, if it has one.
local function record_of_fields(fields, sent, due)
  local content, body, key, headers
  for at = 1, #fields, 2 do
    local name, value = fields[at], fields[at + 1]
    if name == 'body' then
      content, body = CONTENT_JSON, value
    elseif name == 'bytes' then
      content, body = CONTENT_BYTES, value
    elseif name == 'key' then
      key = is_sound_key(value) and value or nil
    elseif name == 'sent' then
      sent = tonumber(value) or sent
    elseif string.sub(name, 1, 7) == 'header:' then
      headers = headers or {}
      headers[string.sub(name, 8)] = value
    end
  end
  if not content then
    content, body, key, headers = CONTENT_FIELDS, listed(fields), nil, nil
  end
  local flags = key and FLAG_KEY or 0
  local head = struct.pack('<ddBBB', sent, due, VERSION, flags, 0) .. (key and struct.pack('<Hc0', #key, key) or '')
  local envelope = struct.pack('BB', headers and 147 or 146, content) .. packed_bytes(body)
  return head .. envelope .. (headers and cmsgpack.pack(headers) or ''), key
end

-- When an entry was published, in microseconds. Most of a batch come from one millisecond.
local last_head, last_sent
local function sent_by(id)
  local head = string.sub(id, 1, 13)
  if head ~= last_head then
    last_head, last_sent = head, tonumber(string.match(id, '^%d+')) * 1000
  end
  return last_sent
end

-- The record of an entry, its key if it has one, and when it was published. Most have a body and nothing else.
local function record_of(id, fields, due)
  local sent, body = sent_by(id), fields[2]
  if #fields == 2 and fields[1] == 'body' and #body < 256 then
    return struct.pack('<ddBBBBBBBc0', sent, due, VERSION, 0, 0, 146, CONTENT_JSON, 196, #body, body), nil, sent
  end
  local record, key = record_of_fields(fields, sent, due)
  return record, key, sent
end
