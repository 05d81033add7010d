-- Part of claim: the lateness of messages that were delivered before. Changes nothing.

-- @include lib/counts.lua

-- Returns the due time that a retry or defer set, or nil.
local function due_by_counts(stored)
  local due = read_counts(stored)[DUE]
  return due > 0 and due or nil
end
