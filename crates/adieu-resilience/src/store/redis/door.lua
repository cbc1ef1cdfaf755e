-- Finds out when connecting whether scripts can write on this server.
local result = redis.pcall('DEL', 'adieu:door')
if type(result) == 'table' then
  -- The user may have other keys: those of the service, which is not known yet.
  local text = string.lower(result.err)
  if not (string.find(text, 'access a key', 1, true) or string.find(text, 'of the keys', 1, true)) then
    return redis.call('DEL', 'adieu:door')
  end
end
return 0
