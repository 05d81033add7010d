--[[
await_end -- return how a message ended; while it lives, have its end announced in `ends`.

KEYS     msgs, leased, why, dead, done, parked, awaited, ends, waiting*
ARGV     digits  text
         id      text    of the message
         wait    number  microseconds that the caller waits; 0: the caller does not wait
RETURNS  {} unknown or expired | { place, score, record, why } dead or done | { after } alive, or its result is pending
         after  an entry of `ends`: the announcement comes after it
KEEPS    no message is touched; a repeat does no harm.
]]
-- @include lib/clock.lua
-- @include lib/drain.lua
-- @include lib/record.lua
-- @include lib/place.lua
-- @include lib/ends.lua
local FORGOTTEN_PER_CALL, RESULT_UNTIL = 100, 12

local function is_expired(now, place, record)
  local may_expire = (place == 'waiting' or place == 'parked') and not flaw_of(record)
  return may_expire and has(flags_of(record), FLAG_TTL) and expiry_of(record) <= now
end

-- Whether a commit has finished a message whose handler has not returned yet.
local function is_result_to_come(why, now)
  local is_read, row = pcall(cmsgpack.unpack, why)
  local result_until = is_read and type(row) == 'table' and row[RESULT_UNTIL]
  return type(result_until) == 'number' and result_until > now
end

local now, record = tick(false), redis.call('HGET', keys.msgs, id)
local place, score = place_of(keys, id, record)
if not place or is_expired(now, place, record) then
  return {}
end
if place == 'dead' or place == 'done' then
  local why = redis.call('HGET', keys.why, id) or ''
  if not is_result_to_come(why, now) then
    return { place, score, record or '', why }
  end
end

if wait > 0 then
  let_a_full_server_drain(keys.why)
  local kept_ms = math.ceil(wait / 1000)
  local until_now = string.format('%.0f', now)
  local over = redis.call('ZRANGEBYSCORE', keys.awaited, '-inf', until_now, 'LIMIT', 0, FORGOTTEN_PER_CALL)
  if #over > 0 then
    redis.call('ZREM', keys.awaited, unpack(over)) -- their callers have stopped waiting
  end
  local known = tonumber(redis.call('ZSCORE', keys.awaited, id) or 0)
  redis.call('ZADD', keys.awaited, math.max(known, now + wait), id)
  if redis.call('PTTL', keys.awaited) < kept_ms then
    redis.call('PEXPIRE', keys.awaited, kept_ms)
  end
end
return { last_end(keys.ends) }
