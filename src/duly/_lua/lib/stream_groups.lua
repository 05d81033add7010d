-- The consumer groups of a stream, as { name, pending, consumers, last = last delivered id, lag }. lag is nil if the
-- server does not report it. A missing stream has no groups.

local function groups_of(stream)
  local found, groups = redis.pcall('XINFO', 'GROUPS', stream), {}
  if found.err then
    return groups
  end
  for i, row in ipairs(found) do
    local group = {}
    for at = 1, #row, 2 do
      group[row[at]] = row[at + 1]
    end
    groups[i] = {
      name = group.name,
      pending = group.pending,
      consumers = group.consumers,
      last = group['last-delivered-id'],
      lag = group.lag or nil,
    }
  end
  return groups
end

local function find_group(stream, name)
  for _, group in ipairs(groups_of(stream)) do
    if group.name == name then
      return group
    end
  end
  return nil
end
