-- Forces a policy open, or releases it.
-- ARGV     the policy, for how many microseconds, by whom; zero releases it
local field, length, by = 'f:' .. ARGV[1], tonumber(ARGV[2]), ARGV[3]
if length == 0 then
  put(field, 'released ' .. text(now), 0)
else
  put(field, table.concat({ 'forced', text(now + length), text(length), by }, ' '), length)
end
bump()
