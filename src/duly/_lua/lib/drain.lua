-- A full server must still drain: over maxmemory a script is refused at its first write unless that
-- is a command which only removes; after it, everything is allowed. Removing a field that is never
-- there costs nothing and opens that door. Sends do not do this: they must be refused.
local function let_a_full_server_drain(some_hash)
  redis.call('HDEL', some_hash, '')
end
