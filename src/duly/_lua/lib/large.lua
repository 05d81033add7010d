-- A thousand records up to this size fit into the bytes of one claim. Once a larger one was stored, the
-- field `large` of meta says so, and claims ask for sizes before they read.
local LARGE = 4096
