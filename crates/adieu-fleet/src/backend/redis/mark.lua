-- The lock and its markers; what the lock must be, the marker's name, its fence and its value.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('HSET', KEYS[2], ARGV[2], ARGV[3] .. ' ' .. ARGV[4])
  return 1
end
return 0
