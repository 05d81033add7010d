--[[
keep_result -- keep what handlers returned after a commit had finished their messages.

KEYS     call      string  last call of the stream and its reply
         why       hash    id -> errors, reason, timeline, result
         done      zset    id -> when it was finished
         awaited   zset    id -> until when somebody waits for its end
         ends      stream  the ends that were awaited
ARGV     sequence  of the call in its stream
         results*  id, fence of the delivery that was committed, result: '' for none
RETURNS  { position ... } of those that are not kept: the message is gone, or was finished by another delivery
KEEPS    I5 I6: only the delivery that committed brings the result, and once.
]]
-- @include lib/call.lua
-- @include lib/drain.lua
-- @include lib/ends.lua
local CALL, FIRST, STRIDE = KEYS[1], 2, 3
local RESULT, RESULT_UNTIL, TIMELINE, SINCE = 10, 12, 8, 4
local keys, sequence = { why = KEYS[2], done = KEYS[3], awaited = KEYS[4], ends = KEYS[5] }, ARGV[1]

let_a_full_server_drain(keys.why)
local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end

-- The row of a message that this delivery finished, if its result is still to come; else nil.
local function row_of(id, fence)
  local stored = redis.call('ZSCORE', keys.done, id) and redis.call('HGET', keys.why, id)
  local is_read, row = pcall(cmsgpack.unpack, stored or '') -- anybody may have written it
  if not is_read or type(row) ~= 'table' or not row[RESULT_UNTIL] then
    return nil
  end
  local timeline = type(row[TIMELINE]) == 'table' and row[TIMELINE] or {}
  local last = timeline[#timeline]
  return type(last) == 'table' and last[SINCE] == fence and row or nil
end

local lost, kept = {}, {}
for at = FIRST, #ARGV, STRIDE do
  local id, row = ARGV[at], row_of(ARGV[at], tonumber(ARGV[at + 1]))
  if row then
    row[RESULT], row[RESULT_UNTIL] = ARGV[at + 2], nil
    redis.call('HSET', keys.why, id, cmsgpack.pack(row))
    kept[#kept + 1] = id
  else
    lost[#lost + 1] = (at - FIRST) / STRIDE + 1
  end
end
if #kept > 0 then
  announce_ends(keys, kept)
end
return answer(CALL, sequence, lost)
