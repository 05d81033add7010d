-- A thousand records up to this size fit into the bytes of one claim. Once a larger one was stored, claims
-- ask for sizes before they read.
local LARGE = 4096

local function note_size(meta, size)
  if size > LARGE then
    redis.call('HSET', meta, 'large', 1)
  end
end
