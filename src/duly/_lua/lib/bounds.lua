-- How much is kept: by count, age (microseconds) and bytes, as arguments give them; -1 is no bound.
local function bounds_of(count, age, bytes)
  return { count = tonumber(count), age = tonumber(age), bytes = tonumber(bytes) }
end
