-- Grants a probe of an open breaker.
-- ARGV     the breaker, the probe, how many probes there may be, the lease in microseconds
-- Returns  'granted' and the generation; 'busy' and how long at most; or 'standing' and the standing
local function run()
  local field, id, most, lease = 'b:' .. ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
  local entry = read(field)
  if not entry or not entry.is_open or entry.ends > now then
    local said = standing(entry)
    table.insert(said, 1, 'standing')
    return said
  end
  local leases, soonest = {}, math.huge
  for _, held in ipairs(entry.leases) do
    if held.ends > now then
      -- Further ahead than a grant can have made it: the clock was set back.
      held.ends = math.min(held.ends, now + lease)
      soonest = math.min(soonest, held.ends - now)
      leases[#leases + 1] = held
    end
  end
  entry.leases = leases
  local answer
  if #leases < most then
    leases[#leases + 1] = { id = id, ends = now + lease }
    answer = { 'granted', text(entry.generation) }
  else
    answer = { 'busy', text(soonest) }
  end
  write_open(field, entry)
  return answer
end
