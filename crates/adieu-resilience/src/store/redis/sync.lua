-- Takes the snapshots of a replica, opens breakers, and returns what has changed.
-- KEYS[3]  the replicas: a sorted set by when each was last seen
-- KEYS[4…] for each snapshot: the windows of its breaker, a hash REPLICA -> "GENERATION CALLS FAILURES AT"
-- ARGV     the replica, whether it leaves, the epoch that it knows; then for each snapshot: breaker,
--          generation, calls, failures, of, ratio, witnesses, first and longest break, spread
-- Returns  the epoch, the number of replicas, whether it is followed by news; for each breaker its
--          field and its standing, for each force its field, its remaining time, and by whom
local replica, is_leaving, known_epoch = ARGV[1], ARGV[2] == '1', ARGV[3]
if is_leaving then
  redis.call('ZREM', KEYS[3], replica)
else
  redis.call('ZADD', KEYS[3], text(now), replica)
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', text(now - KEPT))
  redis.call('PEXPIRE', KEYS[3], '60000')
end
local replicas = redis.call('ZCOUNT', KEYS[3], '(' .. text(now - FRESH), text(now))

local function is_sick(windows, known, of, ratio, witnesses_wanted)
  local calls, failures, replicas_seen, witnesses = 0, 0, 0, 0
  local all = redis.call('HGETALL', windows)
  for at = 2, #all, 2 do
    local g, c, f, seen = string.match(all[at], '^(%d+) (%d+) (%d+) (%d+)$')
    g, c, f, seen = tonumber(g), tonumber(c), tonumber(f), tonumber(seen)
    if seen and seen <= now and now - seen < FRESH and g >= known then
      calls, failures, replicas_seen = calls + c, failures + f, replicas_seen + 1
      if f >= ratio * c then
        witnesses = witnesses + 1
      end
    end
  end
  return calls >= of and failures >= ratio * calls
    and witnesses >= math.min(witnesses_wanted, replicas_seen)
end

for number = 1, #KEYS - 3 do
  local windows, at = KEYS[number + 3], 3 + (number - 1) * 10
  local breaker, generation, calls, failures = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  if calls == '0' then
    redis.call('HDEL', windows, replica)
  else
    local entry = read('b:' .. breaker)
    local known = entry and entry.generation or 0
    if not (entry and entry.is_open) and tonumber(generation) >= known then
      local seen = table.concat({ generation, calls, failures, text(now) }, ' ')
      redis.call('HSET', windows, replica, seen)
      redis.call('PEXPIRE', windows, '6000')
      local of, ratio, witnesses = tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6]), tonumber(ARGV[at + 7])
      if failures ~= '0' and is_sick(windows, known, of, ratio, witnesses) then
        local first, longest, spread = tonumber(ARGV[at + 8]), tonumber(ARGV[at + 9]), tonumber(ARGV[at + 10])
        open('b:' .. breaker, known, 0, first, longest, spread)
        redis.call('DEL', windows)
      end
    end
  end
end

-- Whether this is remembered. A time in the future is due to a clock that was set back: `rewrite` is
-- then called.
local function is_kept(since, rewrite)
  if since > now then
    rewrite()
    return true
  end
  return now - since < KEPT
end

local function force_of(field, value)
  local ends, length, by = string.match(value, '^forced (%d+) (%d+) (.*)$')
  if not ends then
    local since = tonumber(string.match(value, '^released (%d+)$'))
    local rewrite = function() put(field, 'released ' .. text(now), 0) end
    return since and is_kept(since, rewrite) and { '0', '' }
  end
  ends, length = tonumber(ends), tonumber(length)
  if ends > now + length then
    ends = now + length
    put(field, table.concat({ 'forced', text(ends), text(length), by }, ' '), length)
  end
  return ends > now and { text(ends - now), by }
end

local epoch = text(current_epoch())
local news = {}
if epoch ~= known_epoch then
  local all = redis.call('HGETALL', KEYS[2])
  for at = 1, #all, 2 do
    local field, value, said = all[at], all[at + 1], nil
    if string.sub(field, 1, 2) == 'b:' then
      local entry = parse(field, value)
      local rewrite = function() put_closed(field, entry.generation) end
      said = entry and (entry.is_open or is_kept(entry.since, rewrite)) and standing(entry)
    else
      said = force_of(field, value)
    end
    if said then
      table.insert(said, 1, field)
      news[#news + 1] = said
    else
      redis.call('HDEL', KEYS[2], field)
    end
  end
end
return { epoch, replicas, epoch ~= known_epoch and 1 or 0, news }
