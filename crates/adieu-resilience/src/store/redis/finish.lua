-- The end of each script of breakers.
local result = run()
finish()
return result
