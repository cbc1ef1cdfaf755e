-- Forces a policy open, or releases it.
-- ARGV     the policy, for how many microseconds, by whom; zero releases it
local function run()
  put_force('f:' .. ARGV[1], tonumber(ARGV[2]), ARGV[3])
end
