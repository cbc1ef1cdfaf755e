-- What the scripts of breakers share. They do on the server what board.rs does in memory.
-- KEYS[1]  "EPOCH ORIGIN": the epoch rises with each change; changes from before the origin are lost
-- KEYS[2]  the state: a hash of
--            b:BREAKER  "open GENERATION ENDS LENGTH REOPENINGS SUCCEEDED (PROBE ENDS)*"
--                       or "closed GENERATION"
--            f:POLICY   "forced ENDS LENGTH KEPT BY" or "released KEPT"
-- KEYS[3]  the changes: a sorted set of the fields of the state, by the epoch of their last change
-- KEYS[4]  a sorted set of the fields of the state, by when they are forgotten
-- Times are microseconds since 1970, which are exact in doubles.
local FRESH, KEPT, DAY, DAY_IN_MILLIS = 3000000, 60000000, 86400000000, 90000000
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local function text(number)
  return string.format('%.0f', number)
end

-- Rises always, and is never below the time.
local function next_number(number)
  return math.max(number + 1, now)
end

-- Calls a command. A key with a value of another type was not written by adieu, and is replaced.
local function replacing(command, key, ...)
  local result = redis.pcall(command, key, ...)
  if type(result) ~= 'table' or not result.err then
    return result
  elseif string.find(result.err, 'WRONGTYPE', 1, true) then
    redis.call('DEL', key)
  end
  return redis.call(command, key, ...)
end

-- What the script changes is written once, by `finish`.
local epoch, origin, is_bumped
local longest = 0

local function read_epoch()
  if epoch then
    return
  end
  local known, first = string.match(replacing('GET', KEYS[1]) or '', '^(%d+) (%d+)$')
  if known then
    epoch, origin = tonumber(known), tonumber(first)
    return
  end
  -- The key may have been lost alone.
  local last = replacing('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')
  epoch, origin = tonumber(last[2] or 0), 0
end

local function bump(field)
  read_epoch()
  local next_epoch = next_number(epoch)
  if epoch == 0 then
    origin = next_epoch
  end
  epoch, is_bumped = next_epoch, true
  replacing('ZADD', KEYS[3], text(epoch), field)
end

local function put(field, value, forgotten)
  replacing('HSET', KEYS[2], field, value)
  replacing('ZADD', KEYS[4], text(forgotten), field)
  longest = math.max(longest, forgotten - now)
end

-- The keys live for a day after the last change, and for as long as the longest break.
local function finish()
  if is_bumped then
    redis.call('SET', KEYS[1], text(epoch) .. ' ' .. text(origin))
  end
  if longest > 0 then
    local least = math.max(DAY_IN_MILLIS, math.ceil(longest / 1000))
    local lives = text(math.max(least, redis.call('PTTL', KEYS[2])))
    for key = 2, 4 do
      redis.call('PEXPIRE', KEYS[key], lives)
    end
  end
end

local function forget(field)
  replacing('HDEL', KEYS[2], field)
  replacing('ZREM', KEYS[3], field)
  replacing('ZREM', KEYS[4], field)
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
  put(field, table.concat(words, ' '), open.ends + DAY)
end

local function put_closed(field, generation)
  put(field, 'closed ' .. text(generation), now + KEPT)
end

-- Returns nothing for what no script has written, and removes it.
local function parse(field, value)
  local words = {}
  for word in string.gmatch(value, '%S+') do
    words[#words + 1] = word
  end
  local numbers = words[1] == 'open' and 5 or words[1] == 'closed' and 1
  for at = 2, (numbers or 0) + 1 do
    numbers = tonumber(words[at]) and numbers
  end
  if not numbers then
    forget(field)
    return nil
  end
  local entry = { is_open = words[1] == 'open', generation = tonumber(words[2]) }
  if not entry.is_open then
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
  local value = replacing('HGET', KEYS[2], field)
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
  bump(field)
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


local function write_force(field, force)
  if force.length == 0 then
    put(field, 'released ' .. text(force.kept), force.kept)
  else
    local words = { 'forced', text(force.ends), text(force.length), text(force.kept), force.by }
    put(field, table.concat(words, ' '), force.kept)
  end
end

-- What is known of a policy that was forced open or released; nothing after it is forgotten.
local function parse_force(field, value)
  local ends, length, kept, by = string.match(value, '^forced (%d+) (%d+) (%d+) (.*)$')
  if not ends then
    ends, length, kept, by = 0, 0, string.match(value, '^released (%d+)$'), ''
  end
  local force = { ends = tonumber(ends), length = tonumber(length), kept = tonumber(kept), by = by }
  if not force.kept then
    forget(field)
    return nil
  end
  -- Further ahead than the force is long: the clock was set back.
  if force.ends > now + force.length then
    force.ends = now + force.length
    write_force(field, force)
  end
  return force.kept > now and force or nil
end

-- A force is remembered after its end, or its release, for as long as a replica may know of a longer
-- one. Without that, such a replica would bring it back.
local function put_force(field, length, by)
  local value = replacing('HGET', KEYS[2], field)
  local known = value and parse_force(field, value)
  local ends = now + length
  local kept = math.max(ends, known and math.min(known.kept, now + DAY) or 0)
  if length == 0 then
    kept = math.max(kept, now + KEPT)
  end
  write_force(field, { ends = ends, length = length, kept = kept, by = by })
  bump(field)
end
