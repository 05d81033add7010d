--[[
take_tokens -- take the wake tokens of several queues at once.

A worker of many queues that was woken for one of them may have been left tokens by others, too. It takes no more
than it can claim for: the rest stay for other consumers. A repeat gives the same answer, so no token is lost with it.

KEYS     call      string  last call of the stream and its reply
         meta      hash    of the queue whose stream of calls this is; it stays as it is
         others*   list    the `wake` of each queue
ARGV     sequence  of the call in its stream
         limit     tokens at the most
RETURNS  { position ... } of the queues whose token was taken
KEEPS    no message is touched; I6: a token that was taken is in the answer, however often the call is repeated.
]]
-- @include lib/call.lua
-- @include lib/drain.lua
local CALL, META = KEYS[1], KEYS[2]
local FIRST_QUEUE = 3
local sequence, limit = ARGV[1], tonumber(ARGV[2])

let_a_full_server_drain(META)
local repeated = answered(CALL, sequence)
if repeated then
  return repeated
end

local taken = {}
if redis.call('EXISTS', unpack(KEYS, FIRST_QUEUE)) > 0 then
  for n = FIRST_QUEUE, #KEYS do
    if #taken < limit and redis.call('DEL', KEYS[n]) == 1 then
      taken[#taken + 1] = n - FIRST_QUEUE + 1
    end
  end
end
return answer(CALL, sequence, taken)
