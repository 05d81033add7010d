-- An entry of a stream, and the record of it in a group's store. The field `body` (JSON) or `bytes` has the body. The
-- fields `key`, `sent` (microseconds, of a delayed publish) and `header:NAME` are optional. If another program added an
-- entry without a body, all fields except headers are the body, even `key` and `sent`.

-- @include lib/record_layout.lua
-- @include lib/text.lua

local CONTENT_BYTES, CONTENT_JSON, CONTENT_FIELDS = 0, 1, 2
local VERSION, LONGEST_KEY, LONGEST_TIME = 1, 1024, 16
local HEADER, HEADER_NAME_AT = 'header:', 8

-- Returns the MessagePack head of binary data.
local function bytes_head(size)
  if size < 256 then
    return struct.pack('BB', 196, size)
  elseif size < 65536 then
    return struct.pack('>BH', 197, size)
  end
  return struct.pack('>BI4', 198, size)
end

local function listed(fields)
  local parts = {}
  for i, text in ipairs(fields) do
    parts[i] = struct.pack('<I4', #text) .. text
  end
  return table.concat(parts)
end

-- Whether other scripts can use a key: another program may have written it.
local function is_sound_key(key)
  return #key > 0 and #key <= LONGEST_KEY and not string.find(key, '%c')
end

local function is_header(field)
  return string.sub(field, 1, HEADER_NAME_AT - 1) == HEADER
end

-- Returns the name of the header in a field; nil: the field is not a header.
local function header_of(field)
  return is_header(field) and as_text(string.sub(field, HEADER_NAME_AT)) or nil
end

-- Returns names and values in turn, without the headers.
local function without_headers(fields)
  local others = {}
  for at = 1, #fields, 2 do
    if not is_header(fields[at]) then
      others[#others + 1] = fields[at]
      others[#others + 1] = fields[at + 1]
    end
  end
  return others
end

-- Returns the record of an entry with more than a body, and its key or nil.
local function record_of_fields(fields, added, due)
  local sent, content, body, key, headers = added
  for at = 1, #fields, 2 do
    local name, value = fields[at], fields[at + 1]
    if name == 'body' then
      content, body = CONTENT_JSON, value
    elseif name == 'bytes' then
      content, body = CONTENT_BYTES, value
    elseif name == 'key' then
      local text = #value <= LONGEST_KEY and as_text(value)
      key = text and is_sound_key(text) and text or nil
    elseif name == 'sent' then
      sent = #value <= LONGEST_TIME and string.find(value, '^%d+$') and tonumber(value) or sent
    else
      local header = header_of(name)
      if header then
        headers = headers or {}
        headers[header] = as_text(value)
      end
    end
  end
  if not content then
    sent, content, body, key = added, CONTENT_FIELDS, listed(without_headers(fields)), nil
  end
  local flags = key and FLAG_KEY or 0
  local head = struct.pack('<ddBBB', sent, due, VERSION, flags, 0) .. (key and struct.pack('<Hc0', #key, key) or '')
  local envelope = struct.pack('BB', headers and 147 or 146, content) .. bytes_head(#body) .. body
  return head .. envelope .. (headers and cmsgpack.pack(headers) or ''), key
end

-- Returns when an entry was published, in microseconds. Most entries of a batch share a millisecond, so it is cached.
local last_head, last_sent
local function sent_by(id)
  local head = string.sub(id, 1, 14) -- with the hyphen, for the next two centuries
  if head ~= last_head or string.byte(head, 14) ~= 45 then
    last_head, last_sent = head, tonumber(string.match(id, '^%d+')) * 1000
  end
  return last_sent
end

-- Returns the bytes between the times and the body in the record of a plain entry, cached by the size of the body.
local plain_heads = {}
local function plain_head(size)
  local head = plain_heads[size]
  if not head then
    head = struct.pack('BBBBB', VERSION, 0, 0, 146, CONTENT_JSON) .. bytes_head(size)
    plain_heads[size] = head
  end
  return head
end

-- Returns the record of an entry, and its key or nil. Most entries have only a body.
local function record_of(id, fields, due)
  if #fields == 2 and fields[1] == 'body' then
    local body = fields[2]
    return struct.pack('<dd', sent_by(id), due) .. plain_head(#body) .. body
  end
  return record_of_fields(fields, sent_by(id), due)
end
