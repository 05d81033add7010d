-- Positions and flags in a record: see lib/record.lua.

local FLAG_TTL, FLAG_DEDUP, FLAG_KEY, FLAG_OWN_ID, FLAG_REPLACE = 1, 2, 4, 8, 16
local DUE_AT, FLAGS_AT, PRIORITY_AT, OPTIONS_AT = 9, 18, 19, 20
local STAMP_SIZE = 16
local STAMPS_FORMAT = '<dd' -- sent, due; the part follows
