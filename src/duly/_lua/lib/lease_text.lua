-- Writing leases: see lib/lease.lua.

-- @include lib/lease_layout.lua

local function lease_head(fence, size, flags, priority)
  return struct.pack(LEASE_FORMAT, fence, size, flags, priority)
end

-- Returns the name of the consumer, which follows a key of `key_size` bytes. It is padded: see lib/leased.lua.
local function lease_tail(key_size, consumer)
  local size = LEASE_HEAD_SIZE + 2 + key_size + #consumer
  return consumer .. string.rep(' ', LEASE_TEXT_SIZE - size)
end

-- Returns the lease of a message without a key.
local function written_lease(fence, size, flags, priority, consumer)
  local text = lease_head(fence, size, flags, priority) .. consumer
  return text .. string.rep(' ', LEASE_TEXT_SIZE - #text)
end
