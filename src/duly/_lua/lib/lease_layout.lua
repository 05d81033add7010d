-- The layout of a lease (lib/lease.lua), and of the sorted set of leases (lib/leased.lua).

local FLAG_HAS_COUNTS = 128 -- in a lease: the message has a row in `counts` or `why`
local LEASE_FORMAT, LEASE_HEAD_SIZE = '<dI4BB', 14
local KEYED_LEASE_FORMAT, LEASE_KEY_AT = '<dI4BBH', 17 -- with the size of the key
local LEASE_TEXT_SIZE = 65
local ENCODING_GUARD = string.rep('\1', 65)
