-- KEYS: the lock, its markers. ARGV: the expected value of the lock; the marker's name, fence, value.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('HSET', KEYS[2], ARGV[2], ARGV[3] .. ' ' .. ARGV[4])
  return 1
end
return 0
