-- Types of keys. If another program has overwritten a key with another type, a script would stop half-way.

local TYPES = {
  msgs = 'hash',
  leased = 'zset',
  leases = 'hash',
  counts = 'hash',
  why = 'hash',
  expires = 'zset',
  dead = 'zset',
  done = 'zset',
  dedup = 'hash',
  dedup_ends = 'zset',
  lanes = 'hash',
  parked = 'zset',
  awaited = 'zset',
  ends = 'stream',
  wake = 'list',
  meta = 'hash',
  history = 'hash',
}

local function is_type(key, wanted)
  local found = redis.call('TYPE', key).ok
  return found == 'none' or found == wanted
end

-- Returns a key that has a wrong type, or nil.
local function mistyped(keys)
  for name, wanted in pairs(TYPES) do
    local key = keys[name]
    local is_bell = key and name == 'wake' and string.find(key, '{@', 1, true) -- of a group: see lib/bell.lua
    if key and not is_type(key, is_bell and 'stream' or wanted) then
      return key
    end
  end
  for _, key in pairs(keys.waiting or {}) do
    if not is_type(key, 'zset') then
      return key
    end
  end
  return nil
end
