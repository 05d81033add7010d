-- Part of claim: `retry_share`, which divides deliveries between new messages and retries while both are due. A retry
-- is a message that was delivered before in its life. Both kinds are in one sorted set, by due time. So two fields of
-- meta for each priority, `before_new0` and `before_retry0`, remember a message before which no due message is of that
-- kind: claims read each message once. The fields are hints. Without them a claim finds the same messages, later.
-- Reads claim.now, ids, allowed, is_keyed and is_isolating. Sets claim.has_skipped_suspects and claim.is_full.

local MAY_BE_PARKED = 100 -- messages of one kind and priority

-- Returns what earlier calls remember of a priority: the credit of retries, and the messages before each kind.
local function read_turns(digit)
  local fields = redis.call(
    'HMGET',
    META,
    'retry_credit',
    'before_new' .. digit,
    'before_retry' .. digit,
    'released',
    'crashed',
    'redriven',
    'repairs'
  )
  local credit, mark = tonumber(fields[1] or 0) or 0, 0
  for i = 4, #fields do
    mark = mark + (fields[i] or 0) -- these may put a message before a remembered one
  end
  local function place(text)
    local score, id = string.match(text or '', '^' .. mark .. ' (%d+) (.+)$')
    return score and { score = score, id = id }
  end
  return { credit = credit < 1 and credit or 0, mark = mark, new = place(fields[2]), retry = place(fields[3]) }
end

local function store_turns(turns, digit)
  local fields = { 'retry_credit', string.format('%.17g', turns.credit) }
  for _, kind in ipairs({ 'new', 'retry' }) do
    local place = turns[kind]
    if place then
      fields[#fields + 1] = 'before_' .. kind .. digit
      fields[#fields + 1] = turns.mark .. ' ' .. place.score .. ' ' .. place.id
    end
  end
  redis.call('HSET', META, unpack(fields))
end

-- Returns the due messages of both kinds, and the credit of retries; nil if this call can have all that are due.
local function both_kinds(claim, waiting, digit)
  local wanted = claim.allowed - #claim.ids
  if redis.call('ZCOUNT', waiting, '-inf', claim.now) <= wanted then
    return nil
  end
  local turns, kinds = read_turns(digit), {}
  wanted = claim.is_keyed and wanted + MAY_BE_PARKED or wanted
  kinds.new, turns.new = look_for(claim, waiting, false, turns.new, wanted)
  kinds.retries, turns.retry = look_for(claim, waiting, true, turns.retry, wanted)
  kinds.turns = turns
  return kinds
end

-- Returns the next message of a kind that this caller may have, and whether it is a suspect, which goes alone.
local function next_of(claim, kind)
  while kind.ids[kind.at] do
    if not claim.is_isolating or kind.crashes[kind.at] < crash_limit - 1 then
      return kind.ids[kind.at]
    elseif suspects == 'alone' and #claim.ids == 0 then
      return kind.ids[kind.at], true
    end
    claim.has_skipped_suspects = true
    kind.at = kind.at + 1
  end
end

-- Returns the message whose turn it is, the credit of retries if it is delivered, and whether it is a suspect that goes
-- alone; nil if only one kind is due.
local function next_by_share(claim, kinds)
  local new = next_of(claim, kinds.new)
  local retry, is_alone = next_of(claim, kinds.retries)
  if not new or not retry then
    return nil
  end
  local credit = kinds.turns.credit + retry_share
  if credit < 1 then
    kinds.new.at = kinds.new.at + 1
    return new, credit
  end
  kinds.retries.at = kinds.retries.at + 1
  return retry, credit - 1, is_alone
end

-- While new messages and retries of one priority are due, gives each kind its share. `take` leases a message.
local function take_by_share(claim, waiting, digit, take)
  local kinds = both_kinds(claim, waiting, digit)
  if not kinds then
    return
  end
  while #claim.ids < claim.allowed and not claim.is_full do
    local id, credit, is_alone = next_by_share(claim, kinds)
    if not id then
      break
    end
    local before = #claim.ids
    take(claim, waiting, { id }, 1)
    if #claim.ids > before then
      kinds.turns.credit = credit
    end
    claim.is_full = claim.is_full or is_alone
  end
  store_turns(kinds.turns, digit)
end
