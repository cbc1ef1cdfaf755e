-- KEYS: the lock.
local held = redis.call('GET', KEYS[1])
if held then
  return {0, held, redis.call('PTTL', KEYS[1])}
end
return {1, '', 0}
