-- Finding the place of a message.

-- @include lib/record.lua
-- @include lib/lanes.lua

-- Returns 'waiting', 'parked', 'leased', 'dead' or 'done', then the message's score, the key and the member there; nil
-- if it has no place. A message with a flawed record may wait under any priority.
local function place_of(keys, id, record)
  local waiting, key = keys.waiting, nil
  if not flaw_of(record) then
    waiting = { keys.waiting[priority_of(record)] }
    key = key_of(record)
  end
  for _, each in pairs(waiting) do
    local due = redis.call('ZSCORE', each, id)
    if due then
      return 'waiting', tonumber(due), each, id
    end
  end
  local member = key and parked_member(key, record, id)
  if member and redis.call('ZSCORE', keys.parked, member) then
    return 'parked', due_of(record), keys.parked, member
  end
  for _, name in ipairs({ 'leased', 'dead', 'done' }) do
    local score = redis.call('ZSCORE', keys[name], id)
    if score then
      return name, tonumber(score), keys[name], id
    end
  end
  return nil
end
