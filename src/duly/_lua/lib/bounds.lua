-- Bounds of retention, from arguments: count, age (microseconds) and bytes. -1 means no bound.
local function bounds_of(count, age, bytes)
  return { count = tonumber(count), age = tonumber(age), bytes = tonumber(bytes) }
end
