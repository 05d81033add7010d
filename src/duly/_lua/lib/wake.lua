-- Consumers block on the list `wake`, never on data. Its one wake token wakes one consumer, which then claims.

-- @include lib/wake_token.lua

-- Whether a consumer has to watch the queue: it has a message, or a schedule with a next run.
local function needs_watching(msgs, meta)
  return redis.call('HLEN', msgs) > 0 or redis.call('HEXISTS', meta, 'slot') == 1
end

-- Removes the wake token of a queue that has nothing to watch: an empty queue has no key (I9).
local function take_wake_token_if_empty(wake, msgs, meta)
  if not needs_watching(msgs, meta) then
    redis.call('DEL', wake)
  end
end
