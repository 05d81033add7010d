--[[
take_tokens -- take the wake tokens of several queues at once.

A worker of many queues that was woken for one of them may have been left tokens by others, too. It takes no more
than it can claim for: the rest stay for other consumers. A repeat gives the same answer, so no token is lost with it.

KEYS     call, meta
         others*: list the `wake` of each queue
ARGV     sequence  text
         limit     number  tokens at the most
DRAINS   meta
RETURNS  { position ... } of the queues whose token was taken
KEEPS    no message is touched; I6: a token that was taken is in the answer, however often the call is repeated.
]]
local taken = {}
if redis.call('EXISTS', unpack(OTHERS)) > 0 then
  for n, wake in ipairs(OTHERS) do
    if #taken < limit and redis.call('DEL', wake) == 1 then
      taken[#taken + 1] = n
    end
  end
end
return answer(taken)
