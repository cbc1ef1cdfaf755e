-- Returns a probe, with its outcome.
-- ARGV     the breaker, the probe, the generation, the outcome (succeeded, failed, neutral), how many
--          must succeed, first and longest break, spread
-- Returns  the standing of the breaker after that
local function run()
  local field, id, generation, outcome = 'b:' .. ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
  local entry = read(field)
  local held
  if entry and entry.is_open and entry.generation == generation then
    for at, lease in ipairs(entry.leases) do
      if lease.id == id and lease.ends > now then
        held = at
      end
    end
  end
  if held then
    table.remove(entry.leases, held)
    if outcome == 'failed' then
      local first, longest, spread = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
      open(field, generation, entry.reopenings + 1, first, longest, spread)
    else
      if outcome == 'succeeded' then
        entry.succeeded = entry.succeeded + 1
      end
      if outcome == 'succeeded' and entry.succeeded >= tonumber(ARGV[5]) then
        put_closed(field, next_number(generation))
        bump(field)
      else
        write_open(field, entry)
      end
    end
  end
  return standing(read(field))
end
