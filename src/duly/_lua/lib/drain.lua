-- Consumers must be able to drain a full server. Over maxmemory the server refuses the first write of a script, unless
-- it is a command that only removes; all later writes are allowed. So this removes a field that never exists. Sends do
-- not call it: a full server must refuse them.
local function let_a_full_server_drain(some_hash)
  redis.call('HDEL', some_hash, '')
end
