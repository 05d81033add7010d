-- Where a group may stand in a stream: not behind ids that nothing has yet, or it would never have what comes with
-- smaller ones.

-- @include lib/entry_ids.lua

-- The largest id that the stream ever had; 0-0: there is no stream.
local function last_id(stream)
  local info, last = redis.pcall('XINFO', 'STREAM', stream), '0-0'
  for at = 1, #info, 2 do
    last = info[at] == 'last-generated-id' and info[at + 1] or last
  end
  return last
end

-- `id` is an id whose number may be left out, or $; $ if it lies behind the end.
local function within_stream(stream, id)
  if id == '$' then
    return id
  end
  local full = string.find(id, '-', 1, true) and id or id .. '-0'
  return is_before(last_id(stream), full) and '$' or id
end
