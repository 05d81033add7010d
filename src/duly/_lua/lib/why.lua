-- Why a message is where it is: { reason, failures, crashes, defers, releases, errors, rejects }. A live message
-- has a row once an error was reported; its reason is empty. An error is
-- { at, attempt, consumer, error, traceback }; the last few are kept.

local ERRORS_KEPT = 5

local function errors_of(why, id)
  local stored = redis.call('HGET', why, id)
  if not stored then
    return {}
  end
  return cmsgpack.unpack(stored)[6]
end

local function with_error(errors, entry)
  errors[#errors + 1] = entry
  while #errors > ERRORS_KEPT do
    table.remove(errors, 1)
  end
  return errors
end

local function keep_errors(why, id, errors)
  redis.call('HSET', why, id, cmsgpack.pack({ '', 0, 0, 0, 0, errors, 0 }))
end
