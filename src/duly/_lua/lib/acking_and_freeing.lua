-- What lib/acking.lua is, where the topic keeps nothing: entries that every group has acked are removed.

-- @include lib/acking_ids.lua
-- @include lib/free.lua

local is_put_off, is_left_to_free = false, false

-- Entries that this group is done with, or has in its own store.
local function ack_entries(group, ids)
  ack_in_stream(group, ids)
  if is_put_off then
    is_left_to_free = true
  else
    free_acked(STREAM)
  end
end

-- For a script that acks again and again, and at its end frees once: that looks at all groups of the stream.
local function put_freeing_off()
  is_put_off = true
end

-- Others may have acked something meanwhile: groups of other programs free nothing.
local function free_for_others()
  is_left_to_free = true
end

local function free_at_last()
  if is_left_to_free then
    free_acked(STREAM)
  end
end
