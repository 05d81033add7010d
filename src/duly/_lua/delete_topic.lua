--[[
delete_topic -- remove the stream of a topic and its delayed publishes. Callers delete its groups first.

KEYS     call, stream, msgs, dedup, dedup_ends, dead, why, wake, meta, waiting*
ARGV     sequence  text
RETURNS  number of keys removed
KEEPS    I6 I9
]]
local removed = redis.call('UNLINK', unpack(KEYS, KEYS.first, KEYS.last))
return answer(removed)
