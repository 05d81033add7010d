-- Where a message is.

-- 'waiting', 'leased', 'dead' or 'done', the score that it has there, and the key; nil when it is nowhere.
-- A message whose record is flawed may wait under any priority.
local function place_of(keys, id, record)
  local waiting = keys.waiting
  if not flaw_of(record) then
    waiting = { keys.waiting[priority_of(record)] }
  end
  for _, key in pairs(waiting) do
    local due = redis.call('ZSCORE', key, id)
    if due then
      return 'waiting', tonumber(due), key
    end
  end
  for _, name in ipairs({ 'leased', 'dead', 'done' }) do
    local score = redis.call('ZSCORE', keys[name], id)
    if score then
      return name, tonumber(score), keys[name]
    end
  end
  return nil
end
