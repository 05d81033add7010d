-- The record of a message. Scripts write its beginning: sent and due, two doubles (microseconds). The client makes the
-- rest, the part: version, flags, priority, the options that the flags announce, and the envelope. Scripts never unpack
-- an envelope.

-- @include lib/record_layout.lua

local function has(flags, flag)
  return bit.band(flags, flag) ~= 0
end

local function stamped(sent, due, part)
  return struct.pack(STAMPS_FORMAT, sent, due) .. part -- 'c0' would copy it byte by byte
end

local function flags_of(record)
  return string.byte(record, FLAGS_AT)
end

local function priority_of(record)
  return string.byte(record, PRIORITY_AT)
end

local function sent_of(record)
  return (struct.unpack('<d', record))
end

local function due_of(record)
  return (struct.unpack('<d', record, 9))
end

local function part_of(record)
  return string.sub(record, STAMP_SIZE + 1)
end

-- Returns the options that the flags announce: ttl, dedup_for (microseconds), dedup, key; nil: the record is cut off.
local function options_of(record)
  local flags, at, options = flags_of(record), OPTIONS_AT, {}
  local function fits(size)
    return at + size - 1 <= #record
  end
  if has(flags, FLAG_TTL) then
    if not fits(8) then
      return nil
    end
    options.ttl, at = struct.unpack('<d', record, at)
  end
  if has(flags, FLAG_DEDUP) then
    if not fits(10) or not fits(10 + struct.unpack('<H', record, at + 8)) then
      return nil
    end
    options.dedup_for, options.dedup, at = struct.unpack('<dHc0', record, at)
  end
  if has(flags, FLAG_KEY) then
    if not fits(2) or not fits(2 + struct.unpack('<H', record, at)) then
      return nil
    end
    options.key = struct.unpack('<Hc0', record, at)
  end
  return options
end

-- Returns the options of a part that is not stored yet.
local function options_of_part(part)
  return options_of(string.rep('\0', STAMP_SIZE) .. part)
end

-- Returns when a message with a ttl expires. The ttl counts from the requested due time: a retry does not prolong it.
local function expiry_of(record)
  return due_of(record) + options_of(record).ttl
end

local function is_finite(value)
  return value - value == 0
end

-- Returns why a record cannot be delivered, or nil. Another program may have removed or overwritten it.
local function flaw_of(record)
  if not record then
    return 'body lost'
  end
  local flags, priority = string.byte(record, FLAGS_AT, PRIORITY_AT)
  if not priority or priority > 9 then
    return 'damaged'
  end
  local sent, due = struct.unpack('<dd', record)
  local options = flags ~= 0 and options_of(record)
  if not is_finite(sent) or not is_finite(due) or (flags ~= 0 and not options) then
    return 'damaged'
  end
  if options and not (is_finite(options.ttl or 0) and is_finite(options.dedup_for or 0)) then
    return 'damaged'
  end
  return nil
end
