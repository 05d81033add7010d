-- Where a message is.

-- 'waiting', 'leased', 'dead' or 'done' with the score that it has there; nil when it is nowhere.
local function place_of(keys, id, record)
  if not flaw_of(record) then
    local due = redis.call('ZSCORE', keys.waiting[priority_of(record)], id)
    if due then
      return 'waiting', tonumber(due)
    end
  end
  for _, name in ipairs({ 'leased', 'dead', 'done' }) do
    local score = redis.call('ZSCORE', keys[name], id)
    if score then
      return name, tonumber(score)
    end
  end
  return nil
end
