-- Part of audit: dedup windows.
-- READS    dedup, dedup_ends, msgs; now
-- CHANGES  dedup, dedup_ends
-- GIVES    check_dedup(value)

local check_dedup
do
  -- @include lib/dedup_windows.lua

  -- Returns the microseconds left of a window, by the message that opened it; 0: it has ended, or the message is gone.
  local function left_of_window(value, id)
    local record = id and redis.call('HGET', keys.msgs, id)
    local options = record and not flaw_of(record) and options_of(record)
    if not options or options.dedup ~= value then
      return 0
    end
    return math.min(math.max(sent_of(record) + options.dedup_for - now, 0), LONGEST_US)
  end

  function check_dedup(value)
    local id, ends = redis.call('HGET', keys.dedup, value), redis.call('ZSCORE', keys.dedup_ends, value)
    local is_whole_window = id and is_text(id) and ends
    count_id()
    if not is_whole_window or tonumber(ends) > now + LONGEST_US then
      fault(value, is_whole_window and 'a dedup window without an end' or 'half a dedup window', function()
        local left = left_of_window(value, id)
        if left > 0 then
          open_window(keys, now, id, value, left)
          redis.call('PEXPIRE', keys.dedup_ends, redis.call('PTTL', keys.dedup)) -- the key may be new
        else
          redis.call('HDEL', keys.dedup, value)
          redis.call('ZREM', keys.dedup_ends, value)
        end
      end)
    end
  end
end
