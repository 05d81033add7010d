-- The row of a schedule. Scripts write its head: created, after, last (doubles, microseconds) and paused (one byte).
-- The client makes the rest, the plan. Scripts never read a plan: clients compute the runs.

local ROW_FORMAT, HEAD_SIZE = '<dddB', 25

local function written_head(created, after, last, paused)
  return struct.pack(ROW_FORMAT, created, after, last, paused)
end

-- Returns created, after, last and paused; nil: another program wrote the row.
local function read_head(row)
  if not row or #row < HEAD_SIZE then
    return nil
  end
  return struct.unpack(ROW_FORMAT, row)
end

local function head_of(row)
  return string.sub(row, 1, HEAD_SIZE)
end

local function plan_of(row)
  return string.sub(row, HEAD_SIZE + 1)
end

-- Stores when a schedule is due next; false: never. The earliest time of all is in the field `slot` of meta, which
-- claims read with other fields.
local function set_next_run(slots, meta, name, at)
  if at then
    redis.call('ZADD', slots, string.format('%.0f', at), name)
  else
    redis.call('ZREM', slots, name)
  end
  local first = redis.call('ZRANGE', slots, 0, 0, 'WITHSCORES')
  if #first > 0 then
    redis.call('HSET', meta, 'slot', string.format('%.0f', first[2]))
  else
    redis.call('HDEL', meta, 'slot')
  end
end

-- Removes the wake token of a queue that has neither messages nor active schedules (I9).
local function take_wake_token_if_unused(wake, msgs, slots)
  if redis.call('HLEN', msgs) == 0 and redis.call('ZCARD', slots) == 0 then
    redis.call('DEL', wake)
  end
end
