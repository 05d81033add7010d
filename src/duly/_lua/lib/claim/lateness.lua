-- Part of claim: how late messages are that were delivered before. Changes nothing.

-- @include lib/counts.lua

-- The due time that a retry or defer gave a message, or nil.
local function due_by_counts(stored)
  local due = read_counts(stored)[DUE]
  return due > 0 and due or nil
end
