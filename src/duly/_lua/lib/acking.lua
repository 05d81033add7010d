-- How a group is done with entries, where the topic keeps them by count, age or bytes. For a topic that keeps nothing:
-- lib/acking_and_freeing.lua.

-- @include lib/acking_ids.lua

-- Entries that this group is done with, or has in its own store.
local function ack_entries(group, ids)
  ack_in_stream(group, ids)
end

local function put_freeing_off()
  -- nothing is freed here
end

local function free_for_others()
  -- as above
end

local function free_at_last()
  -- as above
end
