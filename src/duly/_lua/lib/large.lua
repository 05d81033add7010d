-- 1,000 records of this size fit into the bytes of one claim. After a larger one was stored, the field `large` of meta
-- is set, and claims check sizes before they read.
local LARGE = 4096
