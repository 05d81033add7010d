-- Effects of a commit on keys of the user. Lua does not roll back. So before the first write every effect is tried on a
-- view of its key, which has the type and number that the key will have by then. If the outcome is not certain, the
-- effect is refused. The client checks names, arity and the syntax of arguments.

local SAFE_INTEGER = 9223372032559808512 -- 2^63 - 2^32: up to there, rounding errors of doubles stay within 64 bits
local EXACT_INTEGER = 9007199254740992 -- 2^53
local SAFE_FLOAT = 1e300
local LONGEST_NUMBER = 400
local LONGEST_STRING = 512 * 1024 * 1024
local LOG_HEAD, LOG_DENSE, LOG_REGISTERS, LOG_LONGEST = 16, 12304, 16384, 20000

local ANY = 'any'
local KIND_OF = {
  SET = ANY,
  SETEX = ANY,
  PSETEX = ANY,
  DEL = ANY,
  UNLINK = ANY,
  EXPIRE = ANY,
  PEXPIRE = ANY,
  PERSIST = ANY,
  INCR = 'string',
  DECR = 'string',
  INCRBY = 'string',
  DECRBY = 'string',
  INCRBYFLOAT = 'string',
  APPEND = 'string',
  PFADD = 'string',
  HSET = 'hash',
  HDEL = 'hash',
  HINCRBY = 'hash',
  HINCRBYFLOAT = 'hash',
  SADD = 'set',
  SREM = 'set',
  ZADD = 'zset',
  ZREM = 'zset',
  ZINCRBY = 'zset',
  LPUSH = 'list',
  RPUSH = 'list',
  LREM = 'list',
  LTRIM = 'list',
  XADD = 'stream',
}
-- Commands that add no data: a full server accepts them.
local REMOVES = {
  DEL = true,
  UNLINK = true,
  HDEL = true,
  SREM = true,
  ZREM = true,
  LREM = true,
  LTRIM = true,
  EXPIRE = true,
  PEXPIRE = true,
  PERSIST = true,
}
-- Commands that may remove the last element, and the key with it.
local MAY_EMPTY = { HDEL = true, SREM = true, ZREM = true, LREM = true, LTRIM = true }

-- Returns the view of a key: its state when the next effect runs. With `stored`, fields without a cell are as on the
-- server. A cell is a value that may be a number: { text } or { number }, or with `made_by` one that only the server
-- will know.
local function view_of(views, key)
  local view = views[key]
  if not view then
    local kind = redis.call('TYPE', key).ok
    view = { key = key, was = kind, kind = kind, stored = true, cells = {}, length = 0 }
    if kind == 'string' then
      view.length = redis.call('STRLEN', key)
    end
    views[key] = view
  end
  return view
end

local function renew(view, kind)
  view.kind, view.stored, view.cells, view.cell, view.may_be_gone = kind, false, {}, nil, false
end

local function stored_cell(view, field)
  if not view.stored or view.kind == 'none' then
    return { text = '0' }
  end
  local length = field and redis.call('HSTRLEN', view.key, field) or view.length
  if length > LONGEST_NUMBER then
    return { text = '' }
  end
  if field then
    return { text = redis.call('HGET', view.key, field) or '0' }
  end
  return { text = redis.call('GET', view.key) or '0' }
end

local function cell_of(view, field)
  if field then
    view.cells[field] = view.cells[field] or stored_cell(view, field)
    return view.cells[field]
  end
  view.cell = view.cell or stored_cell(view)
  return view.cell
end

-- Reads an integer as strictly as the server does; nil: it is not one.
local function integer_of(text)
  local number = (text == '0' or string.match(text, '^-?[1-9]%d*$')) and tonumber(text)
  return number and math.abs(number) <= SAFE_INTEGER and number or nil
end

local function float_of(text)
  if #text > LONGEST_NUMBER then
    return nil -- the server reads no text of more than 5 KiB as a number
  end
  local digits = string.match(text, '^-?(%d+)$')
    or string.match(text, '^-?(%d+%.%d+)$')
    or string.match(text, '^-?(%d+)[eE][+-]?%d+$')
    or string.match(text, '^-?(%d+%.%d+)[eE][+-]?%d+$')
  local number = digits and tonumber(text)
  if not number or math.abs(number) > SAFE_FLOAT then
    return nil
  end
  -- The server refuses a number that is 0 only because it is too small.
  return (number ~= 0 or not string.find(digits, '[1-9]')) and number or nil
end

local function add_integer(cell, added)
  if cell.made_by then
    return 'what it holds after ' .. cell.made_by .. ' is not known beforehand'
  end
  local number = cell.number or integer_of(cell.text)
  if not number then
    return 'it does not hold an integer that surely stays within 64 bits'
  end
  if math.abs(number + added) > SAFE_INTEGER then
    return 'the sum might leave 64 bits'
  end
  cell.number = number + added
  return nil
end

local function add_float(cell, added, name)
  if cell.made_by and not cell.number then
    return 'what it holds after ' .. cell.made_by .. ' is not known beforehand'
  end
  local number = cell.number or float_of(cell.text)
  if not number then
    return 'it does not hold a number'
  end
  if math.abs(number + added) > SAFE_FLOAT then
    return 'the sum might be too large for a number'
  end
  cell.number, cell.made_by = number + added, name
  return nil
end

-- Whether a string is a HyperLogLog that PFADD accepts: it has the head and the full number of registers.
local function is_log(key, length)
  if length < LOG_HEAD or length > LOG_LONGEST then
    return false
  end
  local text = redis.call('GET', key)
  local encoding = string.byte(text, 5)
  if string.sub(text, 1, 4) ~= 'HYLL' or encoding > 1 then
    return false
  end
  if encoding == 0 then
    return length == LOG_DENSE
  end
  local registers, at = 0, LOG_HEAD + 1
  while at <= length do
    local code = string.byte(text, at)
    if code < 64 then
      registers = registers + code + 1
    elseif code < 128 then
      at = at + 1
      registers = registers + (code - 64) * 256 + (string.byte(text, at) or LOG_REGISTERS) + 1
    else
      registers = registers + code % 4 + 1
    end
    at = at + 1
  end
  return registers == LOG_REGISTERS
end

local function lengthen(view, text)
  view.length = view.length + #text
  return view.length > LONGEST_STRING and 'the text might become too long' or nil
end

local function set_text(view, text)
  renew(view, 'string')
  view.cell = { text = text }
  return lengthen(view, text)
end

local function set_if(view, args)
  local exists, condition = view.kind ~= 'none', nil
  for i = 2, #args do
    local word = string.upper(args[i])
    condition = (word == 'NX' or word == 'XX') and word or condition
  end
  if condition and view.may_be_gone then
    return 'whether the key is still there by then is not known beforehand'
  end
  if (condition == 'NX' and exists) or (condition == 'XX' and not exists) then
    return nil
  end
  return set_text(view, args[1])
end

local function append(view, args)
  view.cell = { made_by = 'APPEND' }
  return lengthen(view, args[1])
end

local function add_to_log(view)
  local is_one = view.kind == 'none' or (view.cell and view.cell.made_by == 'PFADD')
  if not is_one and (view.cell or not view.stored or not is_log(view.key, view.length)) then
    return 'it does not hold a HyperLogLog'
  end
  view.cell = { made_by = 'PFADD' }
  return nil
end

-- Returns why a stream accepts no more entries, or nil. Another program may have used the largest id.
local function problem_of_stream(key)
  local info = redis.call('XINFO', 'STREAM', key)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' and #string.match(info[i + 1], '^%d+') == 20 then
      return 'its last id leaves no room for another'
    end
  end
  return nil
end

local function add_entry(view)
  return view.was == 'stream' and view.stored and problem_of_stream(view.key) or nil
end

local function try_fields(view, name, args)
  if name == 'HINCRBY' then
    return add_integer(cell_of(view, args[1]), tonumber(args[2]))
  elseif name == 'HINCRBYFLOAT' then
    return add_float(cell_of(view, args[1]), tonumber(args[2]), name)
  elseif name == 'HSET' then
    for i = 1, #args, 2 do
      view.cells[args[i]] = { text = args[i + 1] }
    end
  else
    for _, field in ipairs(args) do
      view.cells[field] = { text = '0' }
    end
  end
  return nil
end

local function try_text(view, name, args)
  if name == 'INCR' or name == 'DECR' then
    return add_integer(cell_of(view), name == 'INCR' and 1 or -1)
  elseif name == 'INCRBY' or name == 'DECRBY' then
    return add_integer(cell_of(view), tonumber(args[1]) * (name == 'INCRBY' and 1 or -1))
  elseif name == 'INCRBYFLOAT' then
    return add_float(cell_of(view), tonumber(args[1]), name)
  elseif name == 'APPEND' then
    return append(view, args)
  end
  return add_to_log(view)
end

local function try_any(view, name, args)
  if name == 'SET' then
    return set_if(view, args)
  elseif name == 'SETEX' or name == 'PSETEX' then
    return set_text(view, args[2])
  elseif name == 'DEL' or name == 'UNLINK' then
    renew(view, 'none')
  end
  return nil -- EXPIRE, PEXPIRE and PERSIST accept any type
end

local function try_kind(view, kind, name, args)
  local problem
  if kind == 'string' then
    problem = try_text(view, name, args)
  elseif kind == 'hash' then
    problem = try_fields(view, name, args)
  elseif kind == 'stream' then
    problem = add_entry(view)
  end
  if MAY_EMPTY[name] then
    view.may_be_gone = view.may_be_gone or view.kind ~= 'none'
  else
    view.kind, view.may_be_gone = kind, false
  end
  return problem
end

-- Returns why an effect cannot be carried out after the effects before it, or nil.
local function problem_of(views, effect)
  local name, kind, view = effect.name, KIND_OF[effect.name], view_of(views, effect.key)
  if not kind then
    return 'a commit cannot use this command'
  end
  -- Redis 6.2 cannot check permissions beforehand.
  if redis.acl_check_cmd and not redis.acl_check_cmd(name, effect.key, unpack(effect.args)) then
    return 'the user of this connection may not do that'
  end
  if kind == ANY then
    return try_any(view, name, effect.args)
  end
  if view.kind ~= 'none' and view.kind ~= kind then
    return 'it holds a ' .. view.kind .. ', not a ' .. kind
  end
  return try_kind(view, kind, name, effect.args)
end

-- Returns the effects whose rows, each followed by its arguments, begin at ARGV[first]. Their keys begin at
-- KEYS[first_key].
local function effects_from(first, count, first_key)
  local found, at = {}, first
  for i = 1, count do
    local size = tonumber(effect_rows.size(at))
    local key_at = first_key + tonumber(effect_rows.key(at)) - 1
    local effect = { key = others.key(key_at), name = effect_rows.name(at), args = {} }
    local first_arg = at + effect_rows.stride
    at = first_arg + size
    for each = first_arg, at - 1 do
      effect.args[#effect.args + 1] = ARGV[each]
    end
    found[i] = effect
  end
  return found
end

-- Returns the reply for the caller. A number of Lua holds 53 bits. A larger sum is read again, and returned as a list
-- of its digits: no command of KIND_OF replies with a list.
local function exact(effect, reply)
  if type(reply) ~= 'number' or math.abs(reply) <= EXACT_INTEGER then
    return reply
  elseif KIND_OF[effect.name] == 'hash' then
    return { redis.call('HGET', effect.key, effect.args[1]) }
  end
  return { redis.call('GET', effect.key) }
end

-- Carries effects out. Returns their replies, or nil, the position of the first that fails, and its error. All were
-- tried before, but a script cannot check everything: permissions on Redis 6.2, or limits in the configuration.
local function carry_out_effects(effects)
  local replies = {}
  for i, effect in ipairs(effects) do
    local reply = redis.pcall(effect.name, effect.key, unpack(effect.args))
    if type(reply) == 'table' and reply.err then
      return nil, i, reply.err
    end
    replies[i] = exact(effect, reply)
  end
  return replies
end

local function add_no_data(effects)
  for _, effect in ipairs(effects) do
    if not REMOVES[effect.name] then
      return false
    end
  end
  return true
end
