-- Takes the snapshots of a replica, opens breakers, and returns what has changed.
-- KEYS[5]  the replicas: a sorted set by when each was last seen
-- KEYS[6…] for each snapshot: the windows of its breaker, a hash
--          REPLICA -> "GENERATION CALLS FAILURES AT", and " open" if the replica has opened it alone
-- ARGV     the replica, whether it leaves, the epoch that it knows, the number of forces that it knows;
--          for each of these: policy, remaining time, by whom; then for each snapshot: breaker,
--          generation, calls, failures, whether the replica has opened it alone, of, ratio, witnesses,
--          first and longest break, spread
-- Returns  the epoch up to which the news reach, the number of replicas, whether there is news, whether
--          it begins with the first change that is known, whether more is to follow, and the news: for
--          each breaker its field and its standing, for each force its field, its remaining time, and by
--          whom
-- The work of one call is limited: by MOST_NEWS and MOST_FORGOTTEN here, and by the sender of snapshots.
local MOST_NEWS, MOST_FORGOTTEN = 100, 32
local function is_sick(windows, known, of, ratio, witnesses_wanted)
  local calls, failures, replicas_seen, witnesses, opened = 0, 0, 0, 0, 0
  local all = redis.call('HGETALL', windows)
  for at = 2, #all, 2 do
    local g, c, f, seen, is_open = string.match(all[at], '^(%d+) (%d+) (%d+) (%d+)( ?o?p?e?n?)$')
    g, c, f, seen = tonumber(g), tonumber(c), tonumber(f), tonumber(seen)
    if seen and seen <= now and now - seen < FRESH and g >= known then
      calls, failures, replicas_seen = calls + c, failures + f, replicas_seen + 1
      if is_open == ' open' then
        opened = opened + 1
      end
      if is_open == ' open' or f >= ratio * c then
        witnesses = witnesses + 1
      end
    end
  end
  return opened >= witnesses_wanted or calls >= of and failures >= ratio * calls
    and witnesses >= math.min(witnesses_wanted, replicas_seen)
end

-- The standing of a breaker that was just read, with its field. Most are open.
local function news_of(field, value)
  if string.sub(field, 1, 2) == 'f:' then
    local force = parse_force(field, value)
    return force and { field, text(math.max(force.ends - now, 0)), force.ends > now and force.by or '' }
  end
  local generation, ends, length, reopenings = string.match(value, '^open (%d+) (%d+) (%d+) (%d+) %d')
  ends, length = tonumber(ends), tonumber(length)
  if ends and ends <= now + length then
    return { field, 'open', generation, text(math.max(ends - now, 0)), reopenings }
  end
  local entry = parse(field, value)
  local said = entry and standing(entry)
  if said then
    table.insert(said, 1, field)
  end
  return said
end

local function run()
  local replica, is_leaving, known_epoch = ARGV[1], ARGV[2] == '1', tonumber(ARGV[3])
  if is_leaving then
    replacing('ZREM', KEYS[5], replica)
  else
    replacing('ZADD', KEYS[5], text(now), replica)
    redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', text(now - KEPT))
    redis.call('PEXPIRE', KEYS[5], '60000')
  end
  local replicas = redis.call('ZCOUNT', KEYS[5], '(' .. text(now - FRESH), text(now))

  local forgotten = replacing('ZRANGEBYSCORE', KEYS[4], '-inf', text(now), 'LIMIT', 0, MOST_FORGOTTEN)
  for _, field in ipairs(forgotten) do
    forget(field)
  end

  -- Forces that the store has lost. A release that it knows of counts more.
  local argument = 4
  for _ = 1, tonumber(ARGV[4]) do
    local field, left, by = 'f:' .. ARGV[argument + 1], tonumber(ARGV[argument + 2]), ARGV[argument + 3]
    local value = replacing('HGET', KEYS[2], field)
    if not (value and parse_force(field, value)) then
      put_force(field, left, by)
    end
    argument = argument + 3
  end

  for number = 1, #KEYS - 5 do
    local windows, at = KEYS[number + 5], argument + (number - 1) * 11
    local breaker, generation, calls, failures = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
    local is_open = ARGV[at + 5] == '1'
    if calls == '0' and not is_open then
      replacing('HDEL', windows, replica)
    else
      local entry = read('b:' .. breaker)
      local known = entry and entry.generation or 0
      if not (entry and entry.is_open) and tonumber(generation) >= known then
        local seen = table.concat({ generation, calls, failures, text(now) }, ' ')
        replacing('HSET', windows, replica, is_open and seen .. ' open' or seen)
        redis.call('PEXPIRE', windows, '6000')
        local of, ratio, witnesses = tonumber(ARGV[at + 6]), tonumber(ARGV[at + 7]), tonumber(ARGV[at + 8])
        if (is_open or failures ~= '0') and is_sick(windows, known, of, ratio, witnesses) then
          local first, longest, spread = tonumber(ARGV[at + 9]), tonumber(ARGV[at + 10]), tonumber(ARGV[at + 11])
          open('b:' .. breaker, known, 0, first, longest, spread)
          redis.call('DEL', windows)
        end
      end
    end
  end

  read_epoch()
  if known_epoch == epoch then
    return { text(epoch), replicas, 0, 0, 0, {} }
  end
  -- The store has lost what the replica has read: an epoch that it has not reached yet, or one of before it
  -- began anew.
  local since = (known_epoch > epoch or known_epoch < origin) and 0 or known_epoch
  local changes = replacing(
    'ZRANGEBYSCORE', KEYS[3], '(' .. text(since), '+inf', 'WITHSCORES', 'LIMIT', 0, MOST_NEWS + 1)
  local has_more = #changes > 2 * MOST_NEWS
  local reached = has_more and math.min(tonumber(changes[2 * MOST_NEWS]), epoch) or epoch
  local fields, news = {}, {}
  for at = 1, math.min(#changes, 2 * MOST_NEWS), 2 do
    fields[#fields + 1] = changes[at]
  end
  local values = #fields > 0 and replacing('HMGET', KEYS[2], unpack(fields)) or {}
  for at, field in ipairs(fields) do
    if values[at] then
      news[#news + 1] = news_of(field, values[at]) or nil
    else
      forget(field)
    end
  end
  return { text(reached), replicas, 1, since == 0 and 1 or 0, has_more and 1 or 0, news }
end
