-- Texts for clients, which decode them as UTF-8.

-- Replaces bytes that are not UTF-8 by their number, as \xff. Each pattern matches all characters of one kind at once,
-- because a first byte is never a following byte. A loop over the bytes would take seconds per megabyte.
local function as_text(bytes)
  if not string.find(bytes, '[\128-\255]') then
    return bytes
  end
  local kinds = {
    '[\194-\223][\128-\191]',
    '\224[\160-\191][\128-\191]',
    '[\225-\236\238\239][\128-\191][\128-\191]',
    '\237[\128-\159][\128-\191]',
    '\240[\144-\191][\128-\191][\128-\191]',
    '[\241-\243][\128-\191][\128-\191][\128-\191]',
    '\244[\128-\143][\128-\191][\128-\191]',
  }
  local rest = bytes
  for _, kind in ipairs(kinds) do
    rest = string.gsub(rest, kind, ' ')
  end
  if not string.find(rest, '[\128-\255]') then
    return bytes
  end
  -- Each character is replaced by a number while the other bytes are written out.
  local characters, count, written = {}, 0, {}
  local numbers = setmetatable({}, {
    __index = function(known, character)
      count = count + 1
      characters[tostring(count)] = character
      known[character] = '\0' .. count .. ';'
      return known[character]
    end,
  })
  for byte = 128, 255 do
    written[string.char(byte)] = string.format('\\x%02x', byte)
  end
  local text = string.gsub(bytes, '%z', numbers)
  for _, kind in ipairs(kinds) do
    text = string.gsub(text, kind, numbers)
  end
  text = string.gsub(text, '[\128-\255]', written)
  return (string.gsub(text, '%z(%d+);', characters))
end
