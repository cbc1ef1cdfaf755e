-- Takes as many permits of a rate limit as are free.
-- KEYS[1]  the state: "seconds nanoseconds tolerance"; absent if nothing is limited
-- ARGV     interval and tolerance in nanoseconds, how many permits are wanted
-- Returns  how many are granted, nanoseconds until one more is free, nanoseconds until the state means
--          nothing, the tolerance in it
-- Differences of times are exact in doubles; nanoseconds since 1970 would not be.
local interval, tolerance, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local seconds, nanos = tonumber(time[1]), tonumber(time[2]) * 1000

local ahead, written_by = 0, tolerance
-- A value of another type was not written by a script either.
local state = redis.pcall('GET', KEYS[1])
if type(state) == 'table' then
  if string.find(state.err, 'WRONGTYPE', 1, true) then
    redis.call('DEL', KEYS[1])
  end
  state = redis.call('GET', KEYS[1])
end
if state then
  local s, n, t = string.match(state, '^(%d+) (%d+) (%d+)$')
  -- What no script has written limits nothing, and is replaced.
  if s then
    written_by = tonumber(t)
    ahead = (tonumber(s) - seconds) * 1e9 + tonumber(n) - nanos
    -- Further ahead than a grant can have made it: the clock was set back.
    ahead = math.min(math.max(ahead, 0), written_by)
  end
end

local granted = math.min(wanted, math.floor(math.max(tolerance - ahead, 0) / interval))
if granted > 0 then
  ahead = ahead + granted * interval
  written_by = tolerance
end
local wait = math.max(ahead + interval - tolerance, 0)

if ahead > 0 then
  local at = nanos + ahead
  local carry = math.floor(at / 1e9)
  local value = string.format('%.0f %.0f %.0f', seconds + carry, at - carry * 1e9, written_by)
  -- It lives until it means nothing, so its expiry changes no answer.
  redis.call('SET', KEYS[1], value, 'PX', string.format('%.0f', math.ceil(ahead / 1e6)))
elseif state then
  redis.call('DEL', KEYS[1])
end
return { granted, string.format('%.0f', wait), string.format('%.0f', ahead), string.format('%.0f', written_by) }
