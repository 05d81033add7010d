-- Part of claim: large records, of which few fit into a reply. Reads claim.ids and claim.bytes. Sets claim.is_full.

-- Returns those of `candidates` that fit into the remaining bytes of a call; at least the first message.
local function fitting_records(claim, candidates)
  local fitting, total = {}, claim.bytes
  for _, id in ipairs(candidates) do
    total = total + redis.call('HSTRLEN', MSGS, id)
    if total > BYTES_PER_CALL and #claim.ids + #fitting > 0 then
      claim.is_full = true
      break
    end
    fitting[#fitting + 1] = id
  end
  return fitting
end
