--[[
delete_topic -- the stream of a topic, and all that waits to enter it. Its groups are deleted before.

KEYS     call, stream, msgs, dedup, dedup_ends, dead, why, wake, meta, waiting*
ARGV     sequence  text
RETURNS  how many keys there were
KEEPS    I6 I9
]]
local removed = redis.call('UNLINK', unpack(KEYS, KEYS.first, KEYS.last))
return answer(removed)
