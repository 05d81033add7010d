--[[
take_tokens -- take the wake tokens of several queues at once.

A worker that was woken for one of its queues may find tokens in others as well. It takes as many as it has room to
claim for, and leaves the rest to other consumers. A repeat gets the same reply, so no token is lost.

KEYS     call, meta
         others*: list the `wake` of each queue
ARGV     sequence  text
         limit     number  tokens at the most
DRAINS   meta
RETURNS  { position ... } of the queues whose token was taken
KEEPS    no message is touched; I6: a repeated call returns the same tokens.
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
