-- What the scripts of breakers share. They do on the server what board.rs does in memory.
-- KEYS[1]  the epoch, which rises with each transition
-- KEYS[2]  the state: a hash of
--            b:BREAKER  "open GENERATION ENDS LENGTH REOPENINGS SUCCEEDED (PROBE ENDS)*"
--                       or "closed GENERATION SINCE"
--            f:POLICY   "forced ENDS LENGTH BY" or "released SINCE"
-- Times are microseconds since 1970, which are exact in doubles.
local FRESH, KEPT, DAY = 3000000, 60000000, 90000000
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local function text(number)
  return string.format('%.0f', number)
end

-- Rises always, and is never below the time.
local function next_number(number)
  return math.max(number + 1, now)
end

local function current_epoch()
  return tonumber(redis.call('GET', KEYS[1]) or '0') or 0
end

local function bump()
  redis.call('SET', KEYS[1], text(next_number(current_epoch())))
end

-- The state lives for a day after its last change, and for as long as its longest break.
local function put(field, value, length)
  redis.call('HSET', KEYS[2], field, value)
  local lives = math.max(DAY, math.ceil(length / 500), redis.call('PTTL', KEYS[2]))
  redis.call('PEXPIRE', KEYS[2], text(lives))
end

local function write_open(field, open)
  local words = {
    'open', text(open.generation), text(open.ends), text(open.length), text(open.reopenings),
    text(open.succeeded)
  }
  for _, lease in ipairs(open.leases) do
    words[#words + 1] = lease.id
    words[#words + 1] = text(lease.ends)
  end
  put(field, table.concat(words, ' '), open.length)
end

local function put_closed(field, generation)
  put(field, table.concat({ 'closed', text(generation), text(now) }, ' '), 0)
end

-- Returns nothing for what no script has written, and removes it: it would make every report fail.
local function parse(field, value)
  local words = {}
  for word in string.gmatch(value, '%S+') do
    words[#words + 1] = word
  end
  local numbers = words[1] == 'open' and 5 or words[1] == 'closed' and 2
  for at = 2, (numbers or 0) + 1 do
    numbers = tonumber(words[at]) and numbers
  end
  if not numbers then
    redis.call('HDEL', KEYS[2], field)
    return nil
  end
  local entry = { is_open = words[1] == 'open', generation = tonumber(words[2]) }
  if not entry.is_open then
    entry.since = tonumber(words[3])
    return entry
  end
  entry.ends, entry.length = tonumber(words[3]), tonumber(words[4])
  entry.reopenings, entry.succeeded, entry.leases = tonumber(words[5]), tonumber(words[6]), {}
  for at = 7, #words, 2 do
    entry.leases[#entry.leases + 1] = { id = words[at], ends = tonumber(words[at + 1]) or 0 }
  end
  -- Further ahead than the break is long: the clock was set back.
  if entry.ends > now + entry.length then
    entry.ends = now + entry.length
    write_open(field, entry)
  end
  return entry
end

local function read(field)
  local value = redis.call('HGET', KEYS[2], field)
  return value and parse(field, value) or nil
end

local function break_of(opens_for, at_most, reopenings, spread)
  local doubled = math.min(opens_for * 2 ^ math.min(reopenings, 31), at_most)
  return math.max(math.floor(doubled * (0.9 + 0.2 * spread)), 1)
end

local function open(field, known, reopenings, opens_for, at_most, spread)
  local length = break_of(opens_for, at_most, reopenings, spread)
  write_open(field, {
    generation = next_number(known), ends = now + length, length = length,
    reopenings = reopenings, succeeded = 0, leases = {}
  })
  bump()
end

-- The standing of a breaker as words; empty if it is not known.
local function standing(entry)
  if not entry then
    return {}
  elseif entry.is_open then
    local left = math.max(entry.ends - now, 0)
    return { 'open', text(entry.generation), text(left), text(entry.reopenings) }
  end
  return { 'closed', text(entry.generation) }
end

