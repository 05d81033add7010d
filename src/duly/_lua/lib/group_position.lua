-- The position of a group in a stream. It must not be later than the last id, or the group would miss new entries with
-- smaller ids.

-- @include lib/entry_ids.lua

-- Returns the largest id that the stream ever had, or 0-0 if there is no stream.
local function last_id(stream)
  local info, last = redis.pcall('XINFO', 'STREAM', stream), '0-0'
  for at = 1, #info, 2 do
    last = info[at] == 'last-generated-id' and info[at + 1] or last
  end
  return last
end

-- `id` is $, or an id whose number may be omitted. Returns $ for an id later than the last.
local function within_stream(stream, id)
  if id == '$' then
    return id
  end
  local full = string.find(id, '-', 1, true) and id or id .. '-0'
  return is_before(last_id(stream), full) and '$' or id
end
