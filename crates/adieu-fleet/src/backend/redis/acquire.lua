-- KEYS: the lock, its fence. ARGV: the owner, the time to live in milliseconds.
local held = redis.call('GET', KEYS[1])
if held then
  return {0, held, redis.call('PTTL', KEYS[1])}
end
-- At least the time in microseconds, so that fences rise even if the server has lost its data.
local time = redis.call('TIME')
local fence = tonumber(time[1]) * 1000000 + tonumber(time[2])
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
if fence <= last then
  fence = last + 1
end
local text = string.format('%.0f', fence)
redis.call('SET', KEYS[2], text)
redis.call('SET', KEYS[1], text .. ' ' .. ARGV[1], 'PX', ARGV[2])
return {1, text, 0}
