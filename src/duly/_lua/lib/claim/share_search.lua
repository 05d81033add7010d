-- Part of claim: searches for due messages of one kind, for `retry_share`. Reads claim.now and is_isolating.

-- @include lib/counts.lua

local MOST_LOOKED_AT, LEAST_LOOKED_AT = 500, 10 -- messages of one kind and priority

local function rank_behind(waiting, place)
  if not place then
    return 0
  end
  if redis.call('ZSCORE', waiting, place.id) == place.score then
    return redis.call('ZRANK', waiting, place.id) + 1
  end
  return redis.call('ZCOUNT', waiting, '-inf', '(' .. place.score)
end

-- Returns due messages of one kind, in order, with their crashes, and the last message before them.
local function look_for(claim, waiting, is_retry, place, wanted)
  local found, crashes, usable = {}, {}, 0
  local rank, count, left = rank_behind(waiting, place), math.max(wanted, LEAST_LOOKED_AT), MOST_LOOKED_AT
  repeat
    count = math.min(count, left)
    local rows, ids = redis.call('ZRANGE', waiting, rank, rank + count - 1, 'WITHSCORES'), {}
    for i = 1, #rows, 2 do
      if tonumber(rows[i + 1]) <= claim.now then
        ids[#ids + 1] = rows[i]
      end
    end
    local counts = #ids > 0 and redis.call('HMGET', COUNTS, unpack(ids))
    for i, id in ipairs(ids) do
      local counted = counts[i] and read_counts(counts[i])
      if (counted and was_delivered(counted) or false) == is_retry then
        local crashed = counted and counted[CRASHES] or 0
        found[#found + 1], crashes[#crashes + 1] = id, crashed
        if not claim.is_isolating or crashed < crash_limit - 1 then
          usable = usable + 1 -- a suspect may be skipped
        end
      elseif #found == 0 then
        place = { score = rows[2 * i], id = id }
      end
    end
    local is_at_end = #ids < count
    rank, left, count = rank + #ids, left - #ids, 2 * count
  until is_at_end or usable >= wanted or left == 0
  return { ids = found, crashes = crashes, at = 1 }, place
end
