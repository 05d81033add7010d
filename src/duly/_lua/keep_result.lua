--[[
keep_result -- store the results that handlers returned after a commit had finished their messages.

KEYS     call, why, done, meta, awaited, ends
ARGV     sequence  text
         results*  rows    id, fence: of the delivery that was committed, result: '' for none
DRAINS   why
RETURNS  { position ... } of results that are not stored: the message is gone, or another delivery finished it
KEEPS    I5 I6: only the delivery that committed stores a result, and only once.
]]
-- @include lib/ends.lua
-- @include lib/row_bytes.lua
local RESULT, RESULT_UNTIL, TIMELINE, SINCE = 10, 12, 8, 4

-- Returns the row of a message that this delivery finished and whose result is pending, or nil.
local function row_of(id, fence)
  local stored = redis.call('ZSCORE', keys.done, id) and redis.call('HGET', keys.why, id)
  local is_read, row = pcall(cmsgpack.unpack, stored or '') -- another program may have written it
  if not is_read or type(row) ~= 'table' or not row[RESULT_UNTIL] then
    return nil
  end
  local timeline = type(row[TIMELINE]) == 'table' and row[TIMELINE] or {}
  local last = timeline[#timeline]
  return type(last) == 'table' and last[SINCE] == fence and row or nil
end

local lost, kept = {}, {}
for at = results.first, results.last, results.stride do
  local id = results.id(at)
  local row = row_of(id, tonumber(results.fence(at)))
  if row then
    row[RESULT], row[RESULT_UNTIL] = results.result(at), nil
    local packed = cmsgpack.pack(row)
    add_row_bytes(keys, 'done', #packed - redis.call('HSTRLEN', keys.why, id))
    redis.call('HSET', keys.why, id, packed)
    kept[#kept + 1] = id
  else
    lost[#lost + 1] = (at - results.first) / results.stride + 1
  end
end
if #kept > 0 then
  announce_ends(keys, kept)
  store_row_bytes(keys)
end
return answer(lost)
