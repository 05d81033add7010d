-- Part of claim, for groups: how many entries to ask for. The size of an entry is not known before it is read. For
-- published entries it is at most `largest` of the topic's meta. For entries of other programs the average is used.
-- Reads claim.ids, allowed and bytes. Changes nothing.

local READ_AT_ONCE = 100

local function average_size()
  local length = redis.call('XLEN', STREAM)
  return length > 0 and redis.call('MEMORY', 'USAGE', STREAM) / length or 0
end

-- Returns how many entries of a size to ask for: few at a time if they are large. `seen` is the bytes read so far.
local function entries_to_ask_for(claim, size, seen)
  local wanted = math.min(claim.allowed - #claim.ids, READ_AT_ONCE)
  if size <= LARGE then
    return wanted
  end
  return math.min(wanted, math.max(math.floor((BYTES_PER_CALL - math.max(claim.bytes, seen)) / size), 1))
end

local function size_of(entries)
  local size = 0
  for _, entry in ipairs(entries) do
    for _, text in ipairs(entry[2]) do
      size = size + #text
    end
  end
  return size
end
